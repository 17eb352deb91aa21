#include <ATen/ops/zeros.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/runtime/step/impl/measures.h>
#include <lockstep/runtime/step/impl/span.h>

namespace lockstep::detail {

void Measures::take(Reducer& reducer, const Decisions& decisions) {
  begin(reducer, decisions);
  for (size_t b = 0; b < reducer.size(); ++b) {
    StepSpan(kWaitForBucket, b).during([&] { reducer.wait(b); });
    add(reducer, b);
  }
}

void Measures::begin(const Reducer& reducer, const Decisions& decisions) {
  totals_ = decisions.totals();
  rank_sums_ = decisions.rank_sums();
  shared_.reset();
  bucket_sums_.clear();  // left from a window that ended with an error
  if (!reducer.scatters()) {
    return;
  }
  std::vector<int64_t> ends = {0};
  for (size_t b = 0; b < reducer.size(); ++b) {
    ends.push_back(ends.back() + amp::measured_sums(reducer.measured_parts(b), totals_.device()));
  }
  shared_ = at::zeros({ends.back() + 2}, totals_.options());
  for (size_t b = 0; b < reducer.size(); ++b) {
    bucket_sums_.push_back(shared_.narrow(0, ends[b], ends[b + 1] - ends[b]));
  }
}

void Measures::add(const Reducer& reducer, size_t bucket) {
  const amp::MeasuredParts parts = reducer.measured_parts(bucket);
  if (reducer.scatters()) {
    const at::Tensor own = reducer.gradient(bucket, reducer.own_shard(bucket));
    amp::measure_part(own, parts, devices_.rank(), bucket_sums_[bucket]);
  } else {
    amp::measure_into(reducer.wire(bucket), totals_, parts);
  }
}

void Measures::share() {
  if (!shared_.defined()) {
    devices_.all_reduce(rank_sums_).wait();
    return;
  }
  const at::Tensor failed_and_loss = rank_sums_.narrow(0, 1, 2);
  const at::Tensor shared = shared_.narrow(0, shared_.numel() - 2, 2);
  shared.copy_(failed_and_loss);
  devices_.all_reduce(shared_).wait();  // of each sum, all ranks but one bring 0
  failed_and_loss.copy_(shared);
  for (const at::Tensor& sums : bucket_sums_) {
    amp::add_measured(sums, totals_);
  }
  bucket_sums_.clear();
  shared_.reset();
}

}  // namespace lockstep::detail
