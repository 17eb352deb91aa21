#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/activation/planned_chain.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>

namespace lockstep::detail {

/// While the object lives, the modules of a Sequential run by a plan, without changes to the code
/// that calls the Sequential. Replaces each element so that forward() of the element calls
/// PlannedChain::run_stage(). All other access (at(), ptr(), iteration, clone()) reaches the
/// original module. Elements that are added or exchanged meanwhile are left alone.
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
