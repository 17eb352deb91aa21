#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/activation/planned_chain.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>

namespace lockstep::detail {

/// Runs the modules of a Sequential by a plan, in the lifetime of the object, so that forwards that
/// use the Sequential need not change. Each of its elements becomes one that is, to whoever asks,
/// the module that it was, by any way that LibTorch has to reach it: at(), ptr(), iteration,
/// clone(). Only a call of forward() of an element goes by PlannedChain::run_stage(). Elements that
/// are added or exchanged meanwhile are left alone.
class PlannedSequential {
 public:
  explicit PlannedSequential(torch::nn::SequentialImpl& sequential);
  ~PlannedSequential();
  PlannedSequential(const PlannedSequential&) = delete;
  PlannedSequential& operator=(const PlannedSequential&) = delete;

  const PlannedChain& chain() const { return chain_; }

 private:
  torch::nn::SequentialImpl* sequential_;
  std::shared_ptr<torch::nn::Module> keep_alive_;
  PlannedChain chain_;
};

}  // namespace lockstep::detail
