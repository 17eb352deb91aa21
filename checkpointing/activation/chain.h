#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace lockstep {

/// One stage of a chain. forward takes the tensor that the previous stage returned; recompute calls
/// it again. parameters and buffers list the tensors that forward uses, for profiling and
/// recompute.
struct ChainStage {
  std::string name;
  std::function<at::Tensor(at::Tensor)> forward;
  std::function<std::vector<at::Tensor>()> parameters = [] { return std::vector<at::Tensor>(); };
  std::function<std::vector<at::Tensor>()> buffers = [] { return std::vector<at::Tensor>(); };
};

/// Stages that run one after another. A CheckpointPlan divides a chain into regions.
using Chain = std::vector<ChainStage>;

/// Makes a stage of a module (its holder or a pointer) whose forward takes and returns one tensor.
template <class Module>
ChainStage chain_stage(const std::string& name, Module module) {
  return {name, [module](at::Tensor x) mutable { return module->forward(std::move(x)); },
          [module] { return module->parameters(); }, [module] { return module->buffers(); }};
}

namespace detail {

/// The output of stage `name`. Throws Error that names its type if it is no tensor.
at::Tensor one_tensor(at::Tensor* output, const std::string& name, const std::type_info& type);

}  // namespace detail

/// Makes a chain of the modules of a torch::nn::Sequential.
template <class Sequential>
Chain chain_of(Sequential& sequential) {
  Chain chain;
  for (auto& any : *sequential) {
    const auto module = any.ptr();
    chain.push_back({module->name(),
                     [any, name = module->name()](at::Tensor x) mutable {
                       auto output = any.any_forward(std::move(x));
                       return detail::one_tensor(output.template try_get<at::Tensor>(), name,
                                                 output.type_info());
                     },
                     [module] { return module->parameters(); },
                     [module] { return module->buffers(); }});
  }
  return chain;
}

}  // namespace lockstep
