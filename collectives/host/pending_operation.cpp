#include <lockstep/collectives/host/pending_operation.h>

#include <lockstep/collectives/impl/activity.h>

#include <utility>

namespace lockstep::detail {

PendingOperation::PendingOperation(const CollectiveCall& call, std::unique_ptr<CollectiveStep> step,
                                   std::array<at::Tensor, 2> tensors)
    : call(call),
      label(CallLabel::current()),
      step(std::move(step)),
      tensors_(std::move(tensors)) {}

void PendingOperation::complete() {
  step.reset();
  tensors_ = {};
  done = true;
}

}  // namespace lockstep::detail
