#pragma once

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/scaler_state.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/save_report.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/resume_report.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/to_device.h>
#include <lockstep/runtime/trainer_options.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The step: forward, scaled backward, all-reduce, consensus, update, scale, in an order that
/// users cannot get wrong (DESIGN: "Every rank steps, or none does").
///
/// Construction (every rank, same arguments) does, in this order: checks the options, moves the
/// model to Runtime::device(), compares it across ranks, copies rank 0's parameters and buffers to
/// all and verifies them by hash, makes fp32 masters, converts the model to its precision, lays
/// parameters, masters, gradients and moments out in flat buckets, hooks the parameters, gives each
/// rank its random stream.
/// Parameters stay the tensors the model holds; their gradients are consumed by the step, so
/// grad() is undefined after it.
///
/// Only the backward of step() and backward() is the Trainer's. In any other (of another network's
/// loss that runs through this model, as in a GAN; one that the closure itself runs) the parameters
/// behave as plain ones: gradients are summed in grad(), where they may be read until the next
/// backward of the Trainer drops them. set_requires_grad(false) meanwhile saves that work. So two
/// Trainers may train through one another's models, each with its own windows, scale and optimizer;
/// a loss belongs to one of them.
/// Weights are tied by decoder->weight = encoder->weight before the Trainer is made (amp/model.h).
/// Ranks: every rank must make the same calls. Threads: one.
/// Errors: Error on every rank for misuse; the same Error on every rank, exit code out_of_memory
/// and with what holds the memory, where a rank got none for the Trainer, its closure or its
/// backward; the same Error on every rank for a model whose parameters left the Trainer's memory
/// (torch::load, to(dtype), set_data: see adopt_weights()) or that got a parameter since; the same
/// Error, exit code diverged, where ranks hold different weights
/// (TrainerOptions::compare_replicas_every); CommunicationError for a lost peer. An exception of
/// any other type from a closure comes out of step() as the same Error on every rank, which quotes
/// it ("rank 1: no such file") and has the exit code of an Error, out_of_memory, peer_lost or else
/// usage; on the rank that threw it, it is nested in that Error (std::rethrow_if_nested). After an
/// exception from step() no weight, moment, counter or scale has moved, and the next step() starts
/// a new window.
///
/// What is not finite: an update is skipped on all ranks where a gradient of any is not finite.
/// Before the first update a loss that is NaN on some rank ends the step with an Error on every
/// rank instead (exit code non_finite): no scale cures it, and nothing is lost yet. Before that
/// Error all ranks run their last closure again under observers, and it says where the NaN came
/// from, as diagnosis() then does; on a device two windows later, since the host does not wait. An
/// inf loss is skipped like any later one. After 10, 20, 40, ... skips in a row rank 0 prints a
/// warning on standard error, and LossScalerOptions::max_consecutive_skips ends the run (Error on
/// every rank, exit code non_finite) with a diagnosis of the last window, also where the scaler is
/// disabled.
class Trainer {
 public:
  Trainer(Runtime& runtime, Model model, const OptimizerSpec& optimizer,
          TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Runs one micro-batch: `closure` computes the loss (a Tensor or a Loss) under the precision's
  /// autocast; every accumulate()-th call also makes the update.
  StepReport step(const std::function<Loss()>& closure);
  /// The same for closure(inputs): what TrainerOptions::cuda_graph needs, since the inputs of a
  /// record stay at one place, to which these are copied.
  StepReport step(const std::vector<at::Tensor>& inputs,
                  const std::function<Loss(const std::vector<at::Tensor>&)>& closure);
  /// The same from a loss that the caller computed under autocast() himself; never updates.
  void backward(const Loss& loss);
  /// The autocast that step() calls its closure under, until what this returns is destroyed: for
  /// evaluation, and for a loss that is given to backward(). At O0 it is off in the region.
  ///   const auto region = trainer.autocast();
  ///   const torch::NoGradGuard no_grad;
  ///   const auto output = model->forward(input);
  /// At O2 and O3 the weights are 16-bit, so without such a region LibTorch refuses fp32 inputs
  /// ("mat1 and mat2 must have the same dtype"). Of the calling thread. Local.
  [[nodiscard]] amp::Autocast autocast() const;
  /// Makes the update after accumulate() calls of backward. Throws Error saying what to call
  /// otherwise.
  StepReport update();
  /// With uneven_data: takes part in a window with no micro-batch of this rank's own. Returns like
  /// step(); all_out_of_data() of the report says that no rank had one, then stop.
  StepReport step_without_data();
  /// Forgets the micro-batches of an unfinished window. Every rank.
  void abandon();

  /// Saves the state after the last update; between windows. Nothing happens if this update is
  /// saved already. Asynchronous (the default), it returns after the copy, and how it ended is in
  /// the report of a later step (StepReport::saved()); what is pending is completed when the
  /// Trainer is destroyed. `metric`: what KeepOptions::best compares. Throws the same Error on
  /// every rank when there is no folder or the state cannot be saved; if
  /// SnapshotOptions::asynchronous is false, also when writing failed.
  void save(std::optional<double> metric = std::nullopt);
  /// Completes what is pending. Returns how the last save ended, unless a step has told.
  std::optional<snapshot::SaveReport> finish_saving();
  /// For a program that was asked to stop: saves, waits for the disk and throws Error with
  /// ExitCode::preempted, with which run() ends the program.
  [[noreturn]] void save_and_leave();
  /// Goes on from the newest whole snapshot in `folder`, if there is one, or from `folder` itself
  /// if it is a snapshot; later snapshots are then set aside (NAME.aside). Without a folder, from
  /// SnapshotOptions::folder; where that is empty, save() writes to this folder from now on.
  /// After it, weights, moments, counters, scale, loaders of runtime.loader(), variables of state()
  /// (both also if made later) and random numbers are those of the saved run, bit for bit on as
  /// many ranks; on another number, the same but for random numbers and how samples are grouped
  /// into batches. Throws the same Error on every rank, with nothing loaded: all snapshots are
  /// damaged, or names or sizes do not fit (all are listed).
  ResumeReport resume(const std::string& folder = "");
  /// Weights and buffers alone, for fine-tuning: from a run's folder, a snapshot, a safetensors
  /// file or folder, or model.safetensors.index.json. Moments, counters and loaders stay. Throws
  /// the same Error on every rank, with nothing loaded, that lists all that does not match, unless
  /// LoadOptions::match is partial.
  snapshot::LoadReport load_weights(const std::string& path,
                                    const snapshot::LoadOptions& options = {});

  /// Makes a variable of the loop (a hidden state that is carried from batch to batch, a counter,
  /// the best metric) part of snapshots under `name`: save() stores what it holds then, each rank
  /// its own; resume() gives it back, or state() itself, if the variable is named after resume().
  /// The variable has to be there at every save() and resume(); naming another under the same name
  /// takes its place. A tensor becomes a new one with the saved sizes, dtype and bits, without
  /// gradient, on the device of the tensor that the variable holds, or on device() if it holds
  /// none; an undefined one becomes undefined. On another number of ranks, what was the same on all
  /// ranks is given back to all; the rest stays as it is, and ResumeReport names it, as it names
  /// what the snapshot does not have. Ranks: local. Throws Error for an empty name, and (exit code
  /// snapshot) where the snapshot has another kind of variable under this name.
  void state(const std::string& name, at::Tensor& tensor);
  void state(const std::string& name, double& number);
  void state(const std::string& name, int64_t& number);

  /// Asks all ranks to stop: once any rank did, stop_requested() is true on all of them after the
  /// same update. Safe to call from a signal handler.
  void request_stop() noexcept;
  /// Lets signals do that instead of ending this process, until the Trainer is destroyed: those by
  /// which `lockstep run` (SIGUSR1) and Slurm (SIGTERM) ask for an end. On any rank or all. The
  /// loop must look at stop_requested(); save_and_leave() is what it then calls, mostly.
  /// Throws Error for a signal that cannot be caught.
  void stop_on_signals(const std::vector<int>& signals = {SIGTERM, SIGUSR1});
  bool stop_requested() const;

  /// Moves a batch (tensor, pair, tuple or vector of tensors) to the device; never casts: autocast
  /// does.
  template <typename Batch>
  Batch to_device(const Batch& batch) const {
    return moved(batch, device());
  }
  c10::Device device() const;

  /// Sets the learning rate of a group (0: the optimizer's own options, i: those of its i-th
  /// group(); of a TorchOptimizer the i-th of param_groups()), or of all, from the next update on.
  /// The schedule's factor multiplies it as before; with Constant() it is the rate. Snapshots have
  /// it: resume() brings it back, unless the program now configures another rate for the group than
  /// the saved run did; ResumeReport::notes then say so. Every rank, the same rate: the next step()
  /// compares and throws Error on every rank, before anything moves (on a device one step later).
  /// Throws Error for a rate that is negative, infinite or NaN, and where there is no such group.
  void set_learning_rate(double rate, std::optional<int> group = std::nullopt);
  /// The group's rate without the schedule's factor.
  double learning_rate(int group = 0) const;
  /// Gives TrainerOptions::reduce_on_plateau a metric, as after each epoch: it must be the same on
  /// every rank. Returns true if it lowered a learning rate. Throws Error without that option.
  bool reduce_on_plateau(double metric);

  /// Real updates so far: skipped ones do not count.
  int64_t updates() const;
  /// Of one of TrainerOptions().losses(), from 0. Throws Error where there is no such loss.
  double loss_scale(int64_t loss = 0) const;
  amp::ScalerState scaler_state(int64_t loss = 0) const;
  /// After the coming update all ranks replay each window under observers, two more forwards and
  /// backwards a micro-batch, until one overflows; then diagnosis() says where from. One rank
  /// asking is enough. Closures run more often meanwhile; steps give the same bits as ever.
  void diagnose_next_overflow();
  /// Where the last diagnosed overflow came from, the same text on every rank: rank, micro-batch,
  /// first operator with a non-finite value, its module and parameter, forward or backward, shape,
  /// dtype, range, and whether the loss scale or the model is to blame. Empty if there was none.
  /// Loops that call backward() themselves cannot be replayed: for them it names the parameters.
  const std::string& diagnosis() const;
  /// The range of every parameter's gradient in the last update, scaled and in the wire dtype, as
  /// it travelled: absmax, headroom, zeros, subnormals. One pass over the flat buckets. Any rank.
  std::string gradient_table() const;
  /// The fp32 masters by parameter name (the weights themselves at O0, O1 and O3): views; with
  /// Precision::remainders or shard_optimizer copies, and with the latter for every rank to call.
  std::vector<std::pair<std::string, at::Tensor>> masters() const;
  /// The moving averages of the weights by parameter name, fp32: views, with shard_optimizer copies
  /// for every rank to call. Throws Error without TrainerOptions().ema().
  std::vector<std::pair<std::string, at::Tensor>> averaged() const;
  /// After the model's weights were written by hand (clamped, say), loaded by torch::load or
  /// converted by to(dtype): makes the masters what they are now, which otherwise the next update
  /// would undo, and the parameters of the model again what the Trainer trains, in the dtype of its
  /// precision. A parameter that is its master rounded leaves the master as it is. Before
  /// torch::load of an fp32 file into a 16-bit model, call model->to(torch::kFloat): LibTorch would
  /// read the values as 16-bit ones. Every rank, with the same weights: else the same Error on
  /// every rank (exit code diverged), and for other sizes.
  void adopt_weights();
  /// After requires_grad of parameters was changed (layers thawed or frozen), between windows:
  /// trains those that are trainable now, which otherwise is an Error at the end of the next
  /// window. The buckets are laid out again. Parameters that stay keep weight, master, moments and
  /// average bit for bit; counters and scale stay. One that joins starts with the weight that it
  /// has, and without moments; an optimizer that counts updates for all parameters in one goes on
  /// counting. One that leaves keeps its weight. Snapshots hold which parameters are trainable:
  /// resume() makes it as it was. Every rank, with the same parameters; throws Error on every rank
  /// otherwise.
  void adopt_trainable();
  /// True if weights, masters and moments (unless sharded), frozen parameters, scale and update
  /// count have the same bits on every rank, and the model computes with these weights. Every rank.
  bool replicas_agree() const;
  using Memory = ArenaMemory;
  /// Of this rank.
  Memory memory() const;
  /// What the activation budget came to, in one line: predicted and measured peak, the plan. Empty
  /// without a budget and before the first step. Of this rank.
  std::string activation_report() const;
  /// One screen: model, precision, buckets, optimizer, memory. Empty but on rank 0.
  std::string summary() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
