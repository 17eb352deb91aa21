#pragma once

#include <lockstep/amp/precision.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <lockstep/runtime/bucket_plan.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/reduce_on_plateau.h>
#include <lockstep/runtime/snapshot_options.h>
#include <torch/arg.h>

#include <limits>
#include <optional>
#include <string>

namespace lockstep {

struct TrainerOptions {
  TORCH_ARG(Precision, precision) = Precision::O0();
  /// Micro-batches per update. Requires: >= 1.
  TORCH_ARG(int64_t, accumulate) = 1;
  /// Losses of each micro-batch, each with a loss scale of its own by Precision::loss_scale (Apex:
  /// num_losses): the closure returns Loss::several() with so many. Each runs a backward of its
  /// own. A loss that is not finite in the gradients of a rank skips the update, and lowers its own
  /// scale alone. Their sum travels in a unit of its own, a further scale, which falls where the
  /// sum is not finite once it travelled. Costs fp32 accumulators, as accumulate(2) does, and one
  /// small all-reduce an update. Requires: >= 1. Refused with cuda_graph.
  TORCH_ARG(int64_t, losses) = 1;
  /// The update's gradient is scaled down to this norm, measured over all parameters after
  /// averaging. Requires: > 0. Infinity: the norm is reported, nothing is clipped.
  TORCH_ARG(double, clip_grad_norm) = std::numeric_limits<double>::infinity();
  /// After that, each element of the gradient is cut to [-limit, limit]. Requires: > 0.
  TORCH_ARG(double, clip_grad_value) = std::numeric_limits<float>::max();
  /// Decay of an exponential moving average of the weights, Trainer::averaged(): each real update
  /// moves it by (1 - ema) of the way to the new fp32 weights. Requires: 0 <= ema < 1; 0: none.
  TORCH_ARG(double, ema) = 0.0;
  /// True: masters, moments and averages are spread over the ranks (ZeRO stage 1): each updates its
  /// share of the weights, and all gather them. The weights have the same bits as without. Refused
  /// for LAMB and TorchOptimizer.
  TORCH_ARG(bool, shard_optimizer) = false;
  /// Factor on each group's learning rate as a function of the number of real updates.
  TORCH_ARG(Schedule, schedule) = Constant();
  /// The rule by which Trainer::reduce_on_plateau() lowers the learning rates. Unset: none.
  TORCH_ARG(std::optional<ReduceOnPlateau>, reduce_on_plateau) = std::nullopt;
  TORCH_ARG(UnusedParameters, unused) = UnusedParameters::error;
  TORCH_ARG(BufferPolicy, buffers) = BufferPolicy::broadcast;
  TORCH_ARG(BucketOptions, buckets) = {};
  TORCH_ARG(bool, densify_sparse) = false;
  /// True: ranks may have different numbers of micro-batches: one that has none left calls
  /// step_without_data(), and each update averages over the micro-batches that were there.
  TORCH_ARG(bool, uneven_data) = false;
  /// The ranks compare their weights, masters and moments a part at each update, all of it within
  /// so many updates, and whole before each snapshot: Error (exit code diverged) on every rank,
  /// with the rank whose bits differ. On a device they compare at snapshots only. Requires: >= 0.
  /// 0: at snapshots only.
  TORCH_ARG(int64_t, compare_replicas_every) = 100;
  /// Skipped updates in a row after which the next windows are replayed under observers until one
  /// overflows, to say where from (Trainer::diagnosis()). Requires: >= 0. 0: one update before
  /// max_consecutive_skips is spent, or when Trainer::diagnose_next_overflow() asks.
  TORCH_ARG(int64_t, diagnose_after_skips) = 0;
  /// Where a diagnosis writes the bad batch of each rank (safetensors). Empty: nowhere.
  TORCH_ARG(std::string, diagnosis_folder) = "";
  /// Where save() and resume() find the snapshots of the run.
  TORCH_ARG(SnapshotOptions, snapshots) = {};
  /// The most bytes that the activations of a chain may take in one micro-batch, such as "8 GiB":
  /// the first micro-batch measures the chain and plans what to recompute, and after three more
  /// rank 0 prints the predicted and the measured peak on standard error. "automatic" measures
  /// nothing and recomputes by square root of n segments. Weights come out with the same bits.
  TORCH_ARG(ActivationBudget, activation_budget) = {};
  /// The chain that the budget is for; the model's forward calls it. Unset: the model's only
  /// torch::nn::Sequential, whose modules at() and ptr() do not reach while the Trainer lives.
  TORCH_ARG(PlannedChain, activation_chain) = {};
  /// On a CUDA device: step(inputs, closure) records the device's work of a window (forward,
  /// backward, update) once for each shape of the inputs and then runs the record, which costs the
  /// host one call. Same bits as without; skipped updates, the scale and the schedule move on the
  /// device. The closure is then called no more: it may use its inputs, tensors that stay where
  /// they are, and random numbers of the device, and may not read the device. Refused with a
  /// reason: on the CPU, on several ranks without NCCL, with accumulate, uneven_data,
  /// UnusedParameters::detect, activation_budget, TorchOptimizer, Loss::sum.
  TORCH_ARG(bool, cuda_graph) = false;

 public:
  /// Throws Error naming the option.
  void validate() const;
  /// All options on one line: compared between ranks at construction.
  std::string describe() const;

 private:
  void validate_cuda_graph() const;
};

}  // namespace lockstep
