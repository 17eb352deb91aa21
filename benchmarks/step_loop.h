#pragma once

#include <memory>
#include <string>

#include "models.h"

namespace lockstep::benchmarks {

/// A way to run training steps of a reference model with AdamW: lockstep's or a peer's.
/// Ranks: constructed by every rank; step() of ranks that communicate waits for the others.
class StepLoop {
 public:
  virtual ~StepLoop() = default;
  /// One training step on workload().
  virtual void step() = 0;
  /// After the last step.
  virtual void finish() {}
  const Workload& workload() const { return workload_; }

  static constexpr double learning_rate = 1e-4;
  static constexpr int warm_up_steps = 3;

 protected:
  Workload workload_;
};

/// "ours-fp16", "ours-fp32": lockstep::Trainer at O0 with that wire, on the ranks that the
/// launcher started; without a launcher alone, that is with the communication switched off. All
/// steps but the first three are recorded in the file $LOCKSTEP_BENCH_TRACE, if that is set
/// (StepTrace); ranks without a launcher record in a file each, with .$RANK at its end.
/// "local-16": the same with an exchange of weights after 16 updates (LocalUpdates).
/// "accumulate-N", "reproducible-N": N micro-batches on each rank, fp16 wire, without and with
/// TrainerOptions::reproducible. "layers-fused", "layers-channels-last": fp16 wire, and a model
/// with lockstep's fused layers, or with images and convolutions channels_last. "muon",
/// "muon-sharded": with MuonOptimizer, fp16 wire; model gpt. "sharded-fp16", "shared-fp16": with
/// shard_optimizer, and with share_weights too.
std::unique_ptr<StepLoop> make_trainer_loop(const std::string& variant, const std::string& model,
                                            int argc, char** argv);

/// "libtorch": a plain loop with torch::optim::AdamW, one rank.
/// "libtorch-fused": a plain loop with at::_fused_adamw_, one rank.
/// "libtorch-mpi": MPI_Allreduce of each gradient after backward, torch::optim::AdamW.
/// "libtorch-mpi-fused": gradients are views of one buffer, one MPI_Allreduce, at::_fused_adamw_;
/// "libtorch-mpi-fused-channels-last": with images and convolutions channels_last.
std::unique_ptr<StepLoop> make_libtorch_loop(const std::string& variant, const std::string& model);

}  // namespace lockstep::benchmarks
