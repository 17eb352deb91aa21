#pragma once

#include <lockstep/amp/precision.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <lockstep/checkpointing/snapshot/snapshot_options.h>
#include <lockstep/runtime/local_updates.h>
#include <lockstep/runtime/policies.h>
#include <lockstep/runtime/reduce_on_plateau.h>
#include <torch/arg.h>

#include <limits>
#include <optional>
#include <string>

namespace lockstep {

struct TrainerOptions {
  // What is trained.
  TORCH_ARG(Precision, precision) = Precision::O0();
  /// Micro-batches per update. Requires: >= 1.
  TORCH_ARG(int64_t, accumulate) = 1;
  /// Number of losses of each micro-batch (Apex: num_losses). The closure returns Loss::several()
  /// with this many losses. Each loss runs a separate backward and has a separate loss scale, with
  /// the options of Precision::loss_scale. If the gradients of a loss are not finite on any rank,
  /// the update is skipped and only the scale of that loss is lowered. The sum of the gradients
  /// travels at one further scale, which is lowered if the sum is not finite after it travelled.
  /// Costs fp32 accumulators, as accumulate(2) does, and one small all-reduce per update.
  /// Requires: >= 1.
  TORCH_ARG(int64_t, losses) = 1;
  /// True: ranks may have different numbers of micro-batches. A rank that has none left calls
  /// step_without_data(). Each update averages over the micro-batches that the ranks had.
  TORCH_ARG(bool, uneven_data) = false;
  /// Factor on each group's learning rate, as a function of the number of real updates.
  TORCH_ARG(Schedule, schedule) = Constant();
  /// The rule by which Trainer::reduce_on_plateau() lowers the learning rates. Unset: no rule.
  TORCH_ARG(std::optional<ReduceOnPlateau>, reduce_on_plateau) = std::nullopt;
  /// Maximum norm of the update's gradient. A larger gradient is scaled down to this norm. The norm
  /// is measured over all parameters after averaging. Requires: > 0. Infinity: the norm is reported
  /// and nothing is clipped.
  TORCH_ARG(double, clip_grad_norm) = std::numeric_limits<double>::infinity();
  /// After clip_grad_norm, each element of the gradient is clipped to [-limit, limit].
  /// Requires: > 0.
  TORCH_ARG(double, clip_grad_value) = std::numeric_limits<float>::max();
  /// Decay of an exponential moving average of the weights and of floating-point buffers, such as
  /// the running statistics of batch norm: see Trainer::averaged(). Each real update moves the
  /// average by (1 - ema) of its distance to the new fp32 weights and buffers.
  /// Requires: 0 <= ema < 1. 0: no average.
  TORCH_ARG(double, ema) = 0.0;
  TORCH_ARG(UnusedParameters, unused) = UnusedParameters::error;
  TORCH_ARG(bool, densify_sparse) = false;
  TORCH_ARG(BufferPolicy, buffers) = BufferPolicy::broadcast;
  /// True: the weights have the same bits on any number of ranks. The global batch of an update is
  /// cut into a fixed number of micro-batches, the leaves, and each rank runs an equal share of
  /// them. Everything that enters an update belongs to a leaf, not to a rank: samples
  /// (LoaderOptions::leaves), random numbers, buffers such as BatchNorm statistics, and gradients,
  /// whose sum is exact (docs/exactness.md). A snapshot can be resumed on another number of ranks,
  /// in the middle of an epoch, and goes on with the same bits.
  /// Costs 8 bytes per parameter in memory and 8 bytes per parameter on the wire, whatever the wire
  /// dtype. A gradient with an element of 16384 or more, loss scale included, counts as overflow.
  /// Refused, with the reason: devices other than the CPU, ranks that do not divide the leaves, a
  /// number of compute threads that follows from the number of ranks, loaders that deal samples by
  /// rank, fp64 parameters, convert_sync_batchnorm, Trainer::backward(), shard_optimizer with LAMB
  /// or a TorchOptimizer, and weights of Loss::sum that are not multiples of 2^-20.
  TORCH_ARG(bool, reproducible) = false;
  /// With reproducible: micro-batches of an update on all ranks together. Each rank runs leaves /
  /// ranks of them per update; accumulate must be 1 or that number. 0: accumulate * ranks.
  /// Requires: >= 0.
  TORCH_ARG(int64_t, leaves) = 0;
  /// Set: each rank updates its weights with its own gradients, and the ranks exchange weights only
  /// at the end of each round (docs/local-updates.md). All ranks skip an update if one overflows.
  /// Between two exchanges weights and moments differ between ranks: call Trainer::finish_round()
  /// before evaluating or exporting the model. A snapshot holds the state of every rank.
  /// Costs 4 bytes per parameter in memory. Refused, with the reason: weights in 16 bits without
  /// masters, find_learning_rate(), find_batch_size(), and other trainable parameters in the middle
  /// of a run.
  TORCH_ARG(std::optional<LocalUpdates>, local_updates) = std::nullopt;

  // What it costs in time and memory.
  /// True: masters, moments, averages and gradients are sharded over the ranks (ZeRO stage 2; the
  /// accumulators of accumulate, losses and reproducible are whole). Each rank updates its shard,
  /// then all gather the weights. Where hosts sum, these have the same bits as without sharding.
  /// LAMB and the matrices of MuonOptimizer are updated whole, each parameter by one rank: with
  /// them, clip_grad_norm adds the squares in another order than without sharding. A bucket of such
  /// parameters is the ranks times the largest of them, in memory and on the wire: a large
  /// embedding under LAMB on many ranks costs more than sharding saves. Trainer::summary() says so.
  /// See TorchOptimizer for those of torch::optim.
  TORCH_ARG(bool, shard_optimizer) = false;
  /// With shard_optimizer, on hosts: the ranks of a node have one copy of the trained weights, in
  /// shared memory, and need no gather. Frozen weights and buffers are not shared. The bits are
  /// those of a run without. If the memory cannot be shared, each rank has its own copy, and rank 0
  /// says so.
  ///
  /// A write of the program to a weight stays with its rank, in a copy of the pages that it wrote.
  /// Unset, the next update or snapshot adopts what every rank wrote alike, as it does without
  /// sharing, and throws Error on every rank if ranks wrote different values. With true only
  /// Trainer::adopt_weights() adopts it: the next update or snapshot without that throws Error on
  /// every rank and names the weight.
  ///
  /// Unset, weights are not shared on devices, nor of a model with a max_norm embedding, nor where
  /// each node has one rank. With true the first two are refused, with the reason.
  TORCH_ARG(std::optional<bool>, share_weights) = std::nullopt;
  /// On devices: masters, remainders, averages and moments are in page-locked host memory, and
  /// travel to the device and back in each update, bucket by bucket, while others are updated. The
  /// device then holds weights, gradients and two buckets of states. The bits are those of a run
  /// without. Trainer::masters() and the averages of weights are tensors of the host. The host
  /// waits for each update. Refused, with the reason: the CPU, whose memory has the states in any
  /// case, and TorchOptimizer.
  TORCH_ARG(bool, offload_states) = false;
  /// Maximum bytes of the training on this rank's device; on hosts, of all ranks of a node
  /// together, with memory that they share counted once. For example "20 GiB". It counts tensors:
  /// weights, gradients, states and activations, not the process itself. Several ranks then use
  /// shard_optimizer, on hosts share_weights, and devices offload_states and OffloadActivations,
  /// until it is measured what fits. The first two updates keep as few activations as
  /// possible and are measured; on a device that has room for those that were moved, so is a third,
  /// which leaves them there. Then the fastest plan within the budget is chosen: what is
  /// recomputed, and whether the states stay on the device. At most a quarter of the free memory of
  /// the host, divided by the ranks of a node, takes activations. Rank 0 prints it,
  /// and the memory that the next micro-batches use; see Trainer::memory_report(). The bits are
  /// those of a run without. A budget that is too small is an Error on every rank that names the
  /// smallest one that works. A model without an activation_chain and without a
  /// torch::nn::Sequential recomputes nothing.
  TORCH_ARG(MemoryBudget, memory) = {};
  TORCH_ARG(BucketOptions, buckets) = {};
  /// Maximum bytes that the activations of a chain may use in one micro-batch, for example "8 GiB".
  /// The first micro-batch measures the chain and plans what to recompute. Three micro-batches
  /// later, rank 0 prints the predicted and the measured peak on standard error. "automatic"
  /// measures nothing and recomputes in sqrt(n) segments for n stages; "least" keeps as few bytes
  /// as any plan. The weights have the same bits as without a budget.
  TORCH_ARG(ActivationBudget, activation_budget) = {};
  /// The chain that a budget applies to. The model's forward must call this chain. Unset: the
  /// model's only torch::nn::Sequential. A forward that calls the modules of the Sequential itself
  /// is recomputed as far as it calls them one after another; see PlannedChain::run_stage().
  TORCH_ARG(PlannedChain, activation_chain) = {};
  /// On a CUDA device: step(inputs, closure) captures the device work of a window (forward,
  /// backward, update) in a CUDA graph, once for each shape of the inputs, and then launches the
  /// graph with one host call. The results have the same bits as without. Skipped updates, loss
  /// scale and schedule advance on the device. The closure does not run after the capture. The
  /// closure may use its inputs, tensors of the device that keep their address, and random numbers
  /// of the device. Numbers in it stay those of the capture. The closure must not read values back
  /// from the device. It must not copy from the host or use tensors of the host beside those of the
  /// device: the capture then throws an Error, and what differs between steps belongs in the
  /// inputs. Refused, with the reason: on the CPU, on several ranks without NCCL, and with
  /// TorchOptimizer and Loss::sum.
  TORCH_ARG(bool, cuda_graph) = false;

  // What is saved.
  /// Where save() and resume() find the snapshots of the run.
  TORCH_ARG(SnapshotOptions, snapshots) = {};

  // What is checked and told.
  /// Number of updates in which the ranks compare all of their weights, masters and moments once:
  /// they compare one part at each update. They also compare everything before each snapshot. A
  /// difference throws Error (exit code diverged) on every rank and names the rank whose bits
  /// differ; on a device two updates later. Requires: >= 0. 0: only at snapshots.
  TORCH_ARG(int64_t, compare_replicas_every) = 100;
  /// Number of skipped updates in a row after which windows are replayed under observers, until a
  /// window overflows: see Trainer::diagnosis(). Requires: >= 0. 0: windows are replayed one update
  /// before max_consecutive_skips is reached, and on Trainer::diagnose_next_overflow().
  TORCH_ARG(int64_t, diagnose_after_skips) = 0;
  /// Folder to which a diagnosis writes each rank's bad batch (safetensors). Empty: not written.
  TORCH_ARG(std::string, diagnosis_folder) = "";
  /// File to which rank 0 writes digests of the run, for `lockstep diff`: at each update the bits
  /// of the loss and the state of the random numbers of each micro-batch of all ranks; at every
  /// digest_every-th update also weights and reduced gradients of each parameter. Empty: no log. A
  /// resumed run continues its file. Costs one pass over weights and gradients for each
  /// digest_every-th update, and reads each loss from the device.
  TORCH_ARG(std::string, digest_log) = "";
  /// Requires: >= 1.
  TORCH_ARG(int64_t, digest_every) = 10;

 public:
  /// Throws an Error that names the first option with a value out of range, or that excludes
  /// another (docs/options.md).
  void validate() const;
  /// The options that the results depend on, on one line. Construction compares all options between
  /// ranks, those of `precision`, `buckets` and `snapshots` included, but for diagnosis_folder: a
  /// difference is an Error on every rank that names the option and its values.
  std::string describe() const;
};

}  // namespace lockstep
