#pragma once

#include <lockstep/checkpointing/activation/checkpoint_options.h>
#include <lockstep/checkpointing/activation/recomputing.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/activation/impl/function_region.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep {

/// Runs a function or module on the inputs without keeping the tensors that autograd would save
/// inside it. Backward recomputes them when it first needs one. Gradients, random numbers and
/// buffers are the same as without checkpointing.
///
/// function: a callable, which is called with the inputs, or a module (its holder or a shared_ptr),
/// whose forward() is called. The function is copied and kept until backward. It must do the same
/// each time it runs. A lambda should capture by value, and must not capture the tensor that it
/// returns (the graph would own itself). inputs: any number, of any type. Tensors are also found
/// inside std::vector, optional, pair, tuple, array and map (see TensorVisitor). In nested regions
/// the outer region drops the tensors that are inputs of the inner one; tensors that a lambda
/// captures stay in memory. Returns the result of the function.
///
/// Works with backward(), grad(), double backward, retained graphs and inputs that need no
/// gradient. Under no_grad or inference mode the function is called and nothing else happens.
/// Threads: backward may run on another thread than forward. Collectives inside the function run
/// again in backward, on every rank: switch early_stop off for such a function.
///
/// Throws lockstep::Error from backward if an input, or a weight that autograd saves, changed after
/// forward, or if recompute takes another path than forward. The message names the region and the
/// slot of the saved tensor. Autograd saves no bias and no table of embeddings, and under autocast
/// the cast of a weight: update those after backward.
template <class Function, class... Inputs>
[[nodiscard]] decltype(auto) checkpoint(const CheckpointOptions& options, Function&& function,
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
[[nodiscard]] decltype(auto) checkpoint(Function&& function, Inputs&&... inputs) {
  return checkpoint(CheckpointOptions(), std::forward<Function>(function),
                    std::forward<Inputs>(inputs)...);
}

}  // namespace lockstep
