#include <lockstep/runtime/step/impl/leaf_sums.h>

#include <limits>

namespace lockstep::detail {

std::vector<at::Tensor> LeafSums::allocate(const Communicator& communicator,
                                           const std::vector<BucketPlan>& plans) {
  std::vector<at::Tensor> sums;
  sums.reserve(plans.size());
  for (const BucketPlan& plan : plans) {
    sums.push_back(
        communicator.allocate(plan.numel + static_cast<int64_t>(plan.slots.size()), at::kLong));
  }
  return sums;
}

LeafSums::LeafSums(std::vector<at::Tensor> sums, std::vector<BucketPlan> plans, int64_t leaves)
    : sums_(std::move(sums)), plans_(std::move(plans)), form_(amp::FixedPoint::for_terms(leaves)) {}

at::Tensor LeafSums::part(size_t bucket, size_t slot) const {
  const Slot& place = plans_[bucket].slots[slot];
  return sums_[bucket].narrow(0, place.offset, place.numel);
}

int64_t& LeafSums::misfits(size_t bucket, size_t slot) const {
  return sums_[bucket]
      .mutable_data_ptr<int64_t>()[plans_[bucket].numel + static_cast<int64_t>(slot)];
}

void LeafSums::add(size_t bucket, size_t slot, const at::Tensor& gradient, bool first) {
  const bool fits = form_.add(part(bucket, slot), gradient, first);
  int64_t& count = misfits(bucket, slot);
  count = (first ? 0 : count) + (fits ? 0 : 1);
}

void LeafSums::clear(size_t bucket, size_t slot) {
  part(bucket, slot).zero_();
  misfits(bucket, slot) = 0;
}

void LeafSums::read(size_t bucket, const at::Tensor& to, double factor) const {
  form_.read(to, sums_[bucket].narrow(0, 0, plans_[bucket].numel), factor);
  for (size_t slot = 0; slot < plans_[bucket].slots.size(); ++slot) {
    if (misfits(bucket, slot) > 0) {
      const Slot& place = plans_[bucket].slots[slot];
      to.narrow(0, place.offset, place.numel).fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
}

int64_t LeafSums::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& sums : sums_) {
    bytes += static_cast<int64_t>(sums.nbytes());
  }
  return bytes;
}

}  // namespace lockstep::detail
