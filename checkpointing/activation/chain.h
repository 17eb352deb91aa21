#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// One step of a chain: takes the tensor that the step before it returned. forward is called
/// again in recompute; parameters and buffers list what it uses, for profiling and recompute.
struct ChainStage {
  std::string name;
  std::function<at::Tensor(at::Tensor)> forward;
  std::function<std::vector<at::Tensor>()> parameters = [] { return std::vector<at::Tensor>(); };
  std::function<std::vector<at::Tensor>()> buffers = [] { return std::vector<at::Tensor>(); };
};

/// Stages that run one after the other: what a CheckpointPlan divides into regions.
using Chain = std::vector<ChainStage>;

/// A module, by its holder or pointer, as a stage; its forward takes and returns a tensor.
template <class Module>
ChainStage chain_stage(const std::string& name, Module module) {
  return {name, [module](at::Tensor x) mutable { return module->forward(std::move(x)); },
          [module] { return module->parameters(); }, [module] { return module->buffers(); }};
}

/// The modules of a torch::nn::Sequential as a chain.
template <class Sequential>
Chain chain_of(Sequential& sequential) {
  Chain chain;
  for (auto& any : *sequential) {
    const auto module = any.ptr();
    chain.push_back(
        {module->name(),
         [any](at::Tensor x) mutable { return any.template forward<at::Tensor>(std::move(x)); },
         [module] { return module->parameters(); }, [module] { return module->buffers(); }});
  }
  return chain;
}

}  // namespace lockstep
