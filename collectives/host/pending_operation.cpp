#include <lockstep/collectives/host/pending_operation.h>

#include <lockstep/collectives/impl/activity.h>

#include <utility>

namespace lockstep::detail {
namespace {

/// Takes part in the order of the chunks only.
class AbandonedStep final : public CollectiveStep {
 public:
  AbandonedStep(int64_t chunks, bool staged)
      : CollectiveStep(chunks, staged, /*waits_for_peers=*/false) {}
  bool reduce(int64_t, int) override { return true; }
};

}  // namespace

PendingOperation::PendingOperation(const CollectiveCall& call, std::unique_ptr<CollectiveStep> step,
                                   std::array<at::Tensor, 2> tensors)
    : call(call),
      label(CallLabel::current()),
      step(std::move(step)),
      tensors_(std::move(tensors)) {}

std::unique_ptr<CollectiveStep> make_abandoned(int64_t chunks, bool staged) {
  return std::make_unique<AbandonedStep>(chunks, staged);
}

void PendingOperation::abandon(const std::exception_ptr& why) {
  step = make_abandoned(step->chunks(), step->staged());
  tensors_ = {};
  abandoned = why;
}

void PendingOperation::complete() {
  step.reset();
  tensors_ = {};
  done = true;
}

}  // namespace lockstep::detail
