#include <lockstep/collectives/host/pending_operation.h>

#include <lockstep/collectives/core/activity.h>
#include <lockstep/collectives/host/node_engine.h>

#include <utility>

namespace lockstep::detail {

PendingOperation::PendingOperation(std::shared_ptr<NodeEngine> engine, const CollectiveCall& call,
                                   std::unique_ptr<CollectiveStep> step,
                                   std::array<at::Tensor, 2> tensors)
    : call(call),
      label(CallLabel::current()),
      step(std::move(step)),
      engine_(std::move(engine)),
      tensors_(std::move(tensors)) {}

bool PendingOperation::test() {
  if (!done) {
    engine_->advance();
  }
  return done;
}

void PendingOperation::wait() {
  if (!done) {
    engine_->wait_for(*this);
  }
}

void PendingOperation::complete() {
  step.reset();
  tensors_ = {};
  done = true;
}

}  // namespace lockstep::detail
