#include <ATen/ops/empty.h>
#include <lockstep/collectives/core/call_mismatch.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/nccl/call_comparison.h>

#include <cstring>

namespace lockstep::detail {
namespace {

constexpr auto kCallBytes = static_cast<int64_t>(sizeof(CollectiveCall));

}  // namespace

CallComparison::CallComparison(const Communicator& host, CollectiveCheck check)
    : on_(check == CollectiveCheck::on), digests_(host) {
  if (on_) {
    calls_ = host.split(0, host.rank());
  }
}

void CallComparison::announce(const CollectiveCall& call) {
  if (!on_) {
    return;
  }
  Pending pending{call, at::empty({2}, at::kLong), Work()};
  auto* extremes = pending.extremes.mutable_data_ptr<int64_t>();
  extremes[0] = static_cast<int64_t>(call.digest());
  extremes[1] = ~extremes[0];
  pending.reducing = digests_.all_reduce(pending.extremes, ReduceOp::max());
  pending_.push_back(std::move(pending));
}

void CallComparison::look() {
  while (!differing_.has_value() && !pending_.empty() && pending_.front().reducing.test()) {
    compare_oldest();
  }
  if (differing_.has_value() && differing_->gathering.test()) {
    raise();
  }
}

void CallComparison::require(uint64_t sequence) {
  while (!differing_.has_value() && !pending_.empty() &&
         pending_.front().call.sequence <= sequence) {
    pending_.front().reducing.wait();
    compare_oldest();
  }
  if (differing_.has_value() && differing_->call.sequence <= sequence) {
    differing_->gathering.wait();
    raise();
  }
}

void CallComparison::compare_oldest() {
  const Pending oldest = std::move(pending_.front());
  pending_.pop_front();
  const auto* extremes = oldest.extremes.const_data_ptr<int64_t>();
  if (extremes[0] == ~extremes[1]) {
    return;
  }
  differing_.emplace(Differing{oldest.call, at::empty({kCallBytes}, at::kByte),
                               at::empty({kCallBytes * digests_.size()}, at::kByte), Work()});
  std::memcpy(differing_->own.mutable_data_ptr(), &oldest.call, sizeof oldest.call);
  differing_->gathering = calls_->all_gather(differing_->all, differing_->own);
}

void CallComparison::raise() {
  std::vector<CollectiveCall> calls(static_cast<size_t>(digests_.size()));
  std::memcpy(static_cast<void*>(calls.data()), differing_->all.const_data_ptr(),
              differing_->all.nbytes());
  throw_if_calls_differ(digests_.rank(), differing_->call, calls);
  throw Error("the ranks' calls have different digests, yet are equal: a host's memory is faulty");
}

}  // namespace lockstep::detail
