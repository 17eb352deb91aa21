#pragma once

#include <lockstep/checkpointing/activation/checkpoint_options.h>
#include <lockstep/checkpointing/activation/function_region.h>
#include <lockstep/checkpointing/activation/recomputing.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep {

/// Runs a function or module on the inputs, and keeps none of the tensors that autograd would save
/// inside it: backward computes them again when it first needs one. Gradients, random numbers and
/// buffers come out as without.
///
/// function: a callable, called with the inputs, or a module by its holder or shared_ptr, whose
/// forward() is called. It is copied, and kept until backward: let it capture by value, never what
/// it returns (the graph would own itself), and do the same each time it runs. inputs: of any type
/// and number; tensors are also found inside std::vector, optional, pair, tuple, array and map (see
/// TensorVisitor). In nested regions, tensors that are inputs are dropped by the outer region,
/// while those that a lambda captures stay. Returns what the function returns.
///
/// Works with backward(), grad(), double backward, retained graphs and inputs that need no
/// gradient. Under no_grad or inference mode the function is just called. Threads: backward may run
/// on another one. Collectives inside the function are issued again in backward, on every rank
/// alike: switch early_stop off for it.
///
/// Throws lockstep::Error, from backward, where an input or weight changed after forward or
/// recompute takes another path; the message names the region and the saved tensor's slot.
template <class Function, class... Inputs>
decltype(auto) checkpoint(const CheckpointOptions& options, Function&& function,
                          Inputs&&... inputs) {
  using Region = activation::FunctionRegion<std::decay_t<Function>, Inputs...>;
  if (!activation::Region::wanted()) {
    return activation::call(function, std::forward<Inputs>(inputs)...);
  }
  const auto region =
      std::make_shared<Region>(options, std::forward<Function>(function), inputs...);
  return region->run_first(std::forward<Inputs>(inputs)...);
}

template <class Function, class... Inputs,
          class = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, CheckpointOptions>>>
decltype(auto) checkpoint(Function&& function, Inputs&&... inputs) {
  return checkpoint(CheckpointOptions(), std::forward<Function>(function),
                    std::forward<Inputs>(inputs)...);
}

}  // namespace lockstep
