#include <ATen/ops/empty.h>
#include <lockstep/collectives/core/call_mismatch.h>
#include <lockstep/collectives/nccl/call_comparison.h>

#include <cstring>

namespace lockstep::detail {
namespace {

constexpr auto kCallBytes = static_cast<int64_t>(sizeof(CollectiveCall));

}  // namespace

CallComparison::CallComparison(Communicator host, CollectiveCheck check)
    : host_(std::move(host)), on_(check == CollectiveCheck::on) {}

void CallComparison::announce(const CollectiveCall& call) {
  if (!on_) {
    return;
  }
  Pending pending{call, at::empty({kCallBytes}, at::kByte),
                  at::empty({kCallBytes * host_.size()}, at::kByte), Work()};
  std::memcpy(pending.own.mutable_data_ptr(), &call, sizeof call);
  pending.gathering = host_.all_gather(pending.all, pending.own);
  pending_.push_back(std::move(pending));
}

void CallComparison::look() {
  while (!pending_.empty() && pending_.front().gathering.test()) {
    compare_oldest();
  }
}

void CallComparison::require(uint64_t sequence) {
  while (!pending_.empty() && pending_.front().call.sequence <= sequence) {
    pending_.front().gathering.wait();
    compare_oldest();
  }
}

void CallComparison::compare_oldest() {
  const Pending oldest = std::move(pending_.front());
  pending_.pop_front();
  std::vector<CollectiveCall> calls(static_cast<size_t>(host_.size()));
  std::memcpy(static_cast<void*>(calls.data()), oldest.all.const_data_ptr(), oldest.all.nbytes());
  throw_if_calls_differ(host_.rank(), oldest.call, calls);
}

}  // namespace lockstep::detail
