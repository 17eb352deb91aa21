#include <lockstep/collectives/check.h>
#include <lockstep/runtime/step/impl/loss_weights.h>

namespace lockstep::detail {

void LossWeights::add(bool is_sum, double weight) {
  LOCKSTEP_CHECK(kind_is_sum_.value_or(is_sum_.value_or(is_sum)) == is_sum, "this loss is ",
                 is_sum ? "a Loss::sum" : "a mean",
                 ", the earlier ones were not; use one kind throughout");
  is_sum_ = is_sum;
  ++with_data_;
  weight_ += weight;
}

void LossWeights::add_to(Votes& mine) const {
  mine.data = static_cast<double>(with_data_);
  mine.weight = weight_;
  mine.sums = is_sum_.value_or(false) ? 1 : 0;
  mine.means = is_sum_.value_or(true) ? 0 : 1;
}

void LossWeights::take(const Votes& all) {
  LOCKSTEP_CHECK(all.sums == 0 || all.means == 0,
                 "some ranks return Loss::sum, others a mean; use one kind on all ranks");
  if (all.sums + all.means > 0) {
    kind_is_sum_ = all.sums > 0;
  }
  weight_of_all_ = all.weight;
}

double LossWeights::packing_factor() const {
  const double reduced = exact_ ? 1.0 : ranks_;  // what the reduction divides by
  if (!weighted()) {
    return reduced / (static_cast<double>(accumulate_) * ranks_);
  }
  const double total = weight_of_all_.value_or(0.0);
  return total > 0 ? reduced / total : 0.0;
}

double LossWeights::weight_of_window() const {
  return weighted() ? weight_of_all_.value_or(1.0) : static_cast<double>(accumulate_ * ranks_);
}

void LossWeights::begin_window() {
  is_sum_.reset();
  with_data_ = 0;
  weight_ = 0.0;
  weight_of_all_.reset();
}

void LossWeights::visit_state(StateArchive& archive) {
  int64_t kind = kind_is_sum_.has_value() ? static_cast<int64_t>(*kind_is_sum_) : -1;
  archive.number("loss_is_sum", kind);
  if (archive.loading()) {
    kind_is_sum_ = kind < 0 ? std::nullopt : std::make_optional(kind != 0);
  }
}

}  // namespace lockstep::detail
