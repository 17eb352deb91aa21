#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace lockstep::detail {

/// A communicator that an autograd::Function uses in forward and in backward.
struct CommunicatorOfGraph : torch::CustomClassHolder {
  explicit CommunicatorOfGraph(Communicator ranks) : communicator(std::move(ranks)) {}
  Communicator communicator;
};
using CommunicatorOfGraphPtr = c10::intrusive_ptr<CommunicatorOfGraph>;

/// forward() stores it with the graph, backward() takes it from there.
inline void save_communicator(torch::autograd::AutogradContext& context,
                              const CommunicatorOfGraphPtr& communicator) {
  context.saved_data["communicator"] = c10::IValue::make_capsule(communicator);
}
inline CommunicatorOfGraphPtr saved_communicator(torch::autograd::AutogradContext& context) {
  return c10::static_intrusive_pointer_cast<CommunicatorOfGraph>(
      context.saved_data["communicator"].toCapsule());
}

}  // namespace lockstep::detail
