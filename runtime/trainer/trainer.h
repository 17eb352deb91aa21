#pragma once

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/metric_value.h>
#include <lockstep/checkpointing/snapshot/save_report.h>
#include <lockstep/runtime/batch.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/resume_report.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/trainer_options.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/amp/impl/scaler_state.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace detail {
struct TrainerImpl;
}  // namespace detail

/// Trains a model on all ranks: forward, scaled backward, all-reduce, consensus, update, loss
/// scale. Users cannot get the order wrong. Either every rank makes an update or none does.
///
/// Construction is collective: every rank passes the same arguments. The constructor does, in this
/// order:
///   - checks the options and moves the model to Runtime::device();
///   - compares the model across ranks, copies rank 0's parameters and buffers to all ranks and
///     verifies the copies by hash;
///   - makes fp32 masters and converts the model to its precision;
///   - lays out parameters, masters, gradients and moments in flat buckets;
///   - hooks the parameters, and seeds a separate random stream on each rank.
/// The model keeps its parameter tensors. The step consumes their gradients, so grad() is undefined
/// after a step.
///
/// Only the backward that step() or backward() runs belongs to the Trainer. In any other backward
/// the parameters behave as plain LibTorch parameters. Examples are the loss of another network
/// that runs through this model, as in a GAN, or a backward that the closure itself runs. The
/// gradients of such a backward are summed in grad() and can be read until the next backward of the
/// Trainer drops them. set_requires_grad(false) saves that work. Two Trainers may therefore train
/// through each other's models, each with its own windows, loss scale and optimizer. Each loss
/// belongs to one Trainer.
///
/// To tie weights, assign decoder->weight = encoder->weight before the Trainer is made
/// (amp/model.h).
/// Ranks: every rank must make the same calls. Threads: one.
///
/// Errors. Each of these is thrown as the same Error on every rank:
///   - misuse of a call that every rank makes, or a call in the closure of step() that changes the
///     Trainer: step(), backward(), update(), save(), resume(), set_learning_rate(), ...;
///   - a loss with a part that is older than a write to the weights that its backward needs, by an
///     update or another call of a Trainer: LibTorch refuses it, as after torch::optim;
///   - exit code out_of_memory: a rank ran out of memory in the constructor, the closure or the
///     backward; the text lists what holds the memory;
///   - a parameter of the model left the Trainer's memory (torch::load, to(dtype), set_data) or,
///     at O2, was written through data() (see adopt_weights()), or the model has a new parameter;
///   - exit code diverged: ranks hold different weights (TrainerOptions::compare_replicas_every);
///   - an exception from a closure. The Error quotes it ("rank 1: no such file") and keeps the exit
///     code of an Error. For other types the exit code is out_of_memory or peer_lost where memory
///     or a device failed, else usage. On the rank that threw, the original exception is nested in
///     the Error (std::rethrow_if_nested).
/// A window that ends with such an Error has changed no weight, master, moment or loss scale and no
/// count of updates or micro-batches; buffers and random numbers may differ between ranks. The next
/// step() starts a new window. Exceptions: on a device, an Error about learning rates or diverged
/// replicas comes after the update was made; and where the step() of a torch::optim optimizer
/// throws, masters may be updated in part: go on from the last snapshot.
/// A lost peer is a CommunicationError. After it, resume in a new process.
///
/// Collectives in a closure: every rank makes the same calls in the same order each time that the
/// closure runs, on any communicator of the Runtime; best is one of their own, split off before the
/// loop. If a rank fails, collectives in which others wait for it throw PeerStepFailed: let it
/// leave the closure. step() throws the Error as above, and the communicators work on. On a device
/// they do not: ranks that wait for it there throw CommunicationError at the deadline.
/// step_without_data() calls no closure, so it does not go with collectives in the closures of
/// other ranks.
///
/// Non-finite values. All ranks skip an update if any gradient on any rank is not finite.
/// Before the first update, a NaN loss on any rank throws an Error on every rank instead (exit code
/// non_finite): no loss scale can correct a NaN loss, and no training is lost yet. All ranks first
/// run their last closure again under observers, so that the Error and diagnosis() name the origin
/// of the NaN. On a device this Error comes two windows later, since the host does not wait for the
/// device. An inf loss before the first update is skipped, as it is later.
/// After 10, 20, 40, ... skips in a row, rank 0 prints a warning on standard error.
/// LossScalerOptions::max_consecutive_skips ends the run with an Error on every rank (exit code
/// non_finite) and a diagnosis of the last window. The limit also applies where the scaler is
/// disabled.
class Trainer {
 public:
  Trainer(Runtime& runtime, Model model, const OptimizerSpec& optimizer,
          TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Runs one micro-batch. `closure` computes the loss (a Tensor or a Loss) under the precision's
  /// autocast. Every accumulate()-th call also makes the update. The closure may be called again
  /// for the same micro-batch, for example to find where an overflow began. So a value that it
  /// carries to the next step, such as a hidden state, is assigned after step() and not in the
  /// closure.
  StepReport step(const std::function<Loss()>& closure);
  /// The same for closure(inputs), which gets `inputs` on the device of this rank: step() copies
  /// those of the host there, and they may change as soon as it returns. TrainerOptions::cuda_graph
  /// requires this overload: a captured graph reads its inputs from fixed memory.
  StepReport step(const std::vector<at::Tensor>& inputs,
                  const std::function<Loss(const std::vector<at::Tensor>&)>& closure);
  /// Runs one micro-batch from a loss that the caller computed under autocast(). Never makes the
  /// update: call update().
  void backward(const Loss& loss);
  /// Returns a scope guard with the autocast state under which step() calls its closure. The state
  /// holds until the guard is destroyed. Use it for evaluation, and to compute a loss for
  /// backward(). At O0 autocast is off inside the scope.
  ///   const auto region = trainer.autocast();
  ///   const torch::NoGradGuard no_grad;
  ///   const auto output = model->forward(input);
  /// At O2 and O3 the weights have 16 bits. Without this guard LibTorch then refuses fp32 inputs
  /// ("mat1 and mat2 must have the same dtype"). Threads: affects the calling thread. Ranks: local.
  [[nodiscard]] amp::Autocast autocast() const;
  /// Makes the update after accumulate() calls of backward(). Otherwise throws an Error that names
  /// the call to make.
  StepReport update();
  /// With uneven_data: takes part in a window on a rank that has no micro-batch left. Returns the
  /// same report as step(). If StepReport::all_out_of_data() is true, no rank had a micro-batch:
  /// stop.
  StepReport step_without_data();
  /// Drops the micro-batches of an unfinished window. Every rank must call it.
  void abandon();

  /// Saves the state after the last update. Call it between windows, on every rank. Does nothing if
  /// this state is already saved. If only this update is, and anything of the state is another
  /// since on any rank (a variable of state(), random numbers, the place of a loader, weights after
  /// load_weights(), adopt_weights() or finish_round()), writes a further snapshot of the update.
  /// Once that is complete, resume() takes it; until then the earlier one counts. KeepOptions
  /// counts both as one. An asynchronous save (the default) returns after the state is copied. If
  /// one of the same update is still pending, it is completed first. The result of the write is in
  /// the report of a later step (StepReport::saved()). The destructor of the Trainer completes a
  /// pending save. `metric`: the value that KeepOptions::best compares, the same on every rank: the
  /// result of evaluate(), whose first value counts, or a number. A metric for a state that is
  /// already saved is added to its snapshot. A further snapshot without one has that of the earlier
  /// snapshot, unless one of those three calls changed the weights. A metric that is not finite is
  /// left out, and rank 0 says so on standard error. Throws the same Error on every rank if there
  /// is no folder or the state cannot be saved, and, if SnapshotOptions::asynchronous is false, if
  /// writing fails.
  void save(std::optional<MetricValue> metric = std::nullopt);
  /// Completes a pending save. Returns the result of the last save, unless a step has already
  /// reported it.
  std::optional<snapshot::SaveReport> finish_saving();
  /// Ends a program that was asked to stop: calls save(), waits until the snapshot is on the disk,
  /// and throws an Error with ExitCode::preempted. run() ends the program with that code.
  [[noreturn]] void save_and_leave();
  /// Resumes from the newest complete snapshot in `folder`, if there is one. If `folder` itself is
  /// a snapshot, resumes from it. Later snapshots are then renamed NAME.aside. An empty `folder`
  /// means SnapshotOptions::folder. If SnapshotOptions::folder is empty, save() writes to this
  /// folder from now on.
  /// Restores weights, moments, counters, loss scale, loaders of runtime.loader(), variables of
  /// state() and random numbers. Loaders and variables may also be made after resume(). On the same
  /// number of ranks the restored state is that of the saved run, bit for bit. On another number,
  /// random numbers and the grouping of samples into batches differ.
  /// Throws the same Error on every rank, and loads nothing, if all snapshots are damaged, or if
  /// names, sizes or ties do not fit (the Error lists all of them).
  ResumeReport resume(const std::string& folder = "");
  /// Loads only weights and buffers, for fine-tuning. `path` is the folder of a run, a snapshot, a
  /// safetensors file or folder, or model.safetensors.index.json. Moments, counters and loaders do
  /// not change. With TrainerOptions::ema the moving averages start at what was loaded, or are
  /// loaded too: if `path` names a snapshot that has them all, and `options` map no names and take
  /// no averages for weights. If names or sizes do not match, throws the same Error on every rank,
  /// lists every mismatch and loads nothing, unless LoadOptions::match is partial. Throws Error in
  /// the closure of a step. Collective.
  snapshot::LoadReport load_weights(const std::string& path,
                                    const snapshot::LoadOptions& options = {});

  /// Adds a variable of the training loop to snapshots under `name`. Examples: a hidden state that
  /// is carried from batch to batch, a counter, the best metric, a generator written to a
  /// std::string. save() stores the current value of each rank. resume() restores it; if the
  /// variable is added after resume(), state() restores it. The variable must exist at every save()
  /// and resume(). A second call with the same name replaces the variable. A restored tensor is a
  /// new tensor with the saved sizes, dtype and bits, and without gradient. It is on the device of
  /// the tensor that the variable holds, or on device() if the variable holds none. An undefined
  /// tensor is restored as undefined. On another number of ranks, a value that was the same on all
  /// ranks is restored on all. Other variables keep their present value, and ResumeReport lists
  /// them. ResumeReport also lists variables that are missing in the snapshot. Ranks: local. Throws
  /// Error for an empty name, and Error (exit code snapshot) if the snapshot has a variable of
  /// another type under this name.
  void state(const std::string& name, at::Tensor& tensor);
  void state(const std::string& name, double& number);
  void state(const std::string& name, int64_t& number);
  void state(const std::string& name, std::string& bytes);

  /// Asks all ranks to stop. Once any rank has asked, stop_requested() becomes true on all ranks
  /// after the same update; on a device one update later than on the host. It is true between
  /// windows only, where save() can be called. Safe to call from a signal handler.
  void request_stop() noexcept;
  /// Makes SIGTERM and SIGUSR1 (those of Slurm and `lockstep run`) ask all ranks to stop, as
  /// request_stop() does, until the Trainer is destroyed; also Ctrl-C (SIGINT) in a program that no
  /// launcher started and that does nothing else about it. A second Ctrl-C ends the program at
  /// once. The signals are blocked on this thread, also for programs that it starts. Any rank may
  /// call, or all, on the thread that trains. The training loop must check stop_requested(), and
  /// then usually calls save_and_leave().
  void stop_on_signals();
  /// The same for these signals. Throws Error for a signal that cannot be caught.
  void stop_on_signals(const std::vector<int>& signals);
  bool stop_requested() const;

  /// Moves a batch (tensor, pair, tuple or vector of tensors) to the device. Never casts: autocast
  /// casts.
  template <typename Batch>
  Batch to_device(const Batch& batch) const {
    return moved(batch, device());
  }
  c10::Device device() const;
  /// The Runtime that the Trainer was made with.
  Runtime& runtime() const;

  /// Sets the learning rate of one group, or of all groups, from the next update on. Group 0 has
  /// the optimizer's own options, group i those of its i-th group(). For a TorchOptimizer, i is an
  /// index into param_groups(). The schedule's factor still multiplies the rate; with Constant()
  /// the factor is 1. Snapshots hold the rate, and resume() restores it. Exception: if the program
  /// now configures another rate for the group than the saved run did, the rate is not restored and
  /// ResumeReport::notes says so.
  /// Every rank must set the same rate. The next step() compares the rates. If they differ, it
  /// throws Error on every rank before anything changes; on a device, step() throws one step later,
  /// after the update was made. Throws Error for a rate that is negative, infinite or NaN, and for
  /// a group that does not exist.
  void set_learning_rate(double rate, std::optional<int> group = std::nullopt);
  /// The learning rate of a group, without the schedule's factor.
  double learning_rate(int group = 0) const;
  /// Passes a metric to the rule TrainerOptions::reduce_on_plateau, for example after each epoch:
  /// the result of evaluate(), whose first value counts, or a number. It must be the same on every
  /// rank. Returns true if the rule lowered a learning rate. Throws Error if the option is not set,
  /// or if its mode contradicts the metric.
  bool reduce_on_plateau(const MetricValue& metric);

  /// Number of real updates so far. Skipped updates do not count.
  int64_t updates() const;
  /// The loss scale of one of the TrainerOptions().losses() losses, counted from 0. Throws Error
  /// for a loss that does not exist.
  double loss_scale(int64_t loss = 0) const;
  amp::ScalerState scaler_state(int64_t loss = 0) const;
  /// Asks for a diagnosis of the next overflow. After the coming update all ranks replay each
  /// window under observers, until a window overflows. diagnosis() then names the origin. A replay
  /// costs two more forwards and backwards per micro-batch and calls the closure more often. The
  /// bits of the training steps do not change. A request from one rank is enough.
  void diagnose_next_overflow();
  /// The origin of the last diagnosed overflow; empty if there was none. The text is the same on
  /// every rank. It names the rank, the micro-batch, the first operator with a non-finite value,
  /// the operator's module and parameter, forward or backward, shape, dtype and range, and says
  /// whether the loss scale or the model is the cause. A loop that calls backward() itself cannot
  /// be replayed: the text then names the parameters.
  const std::string& diagnosis() const;
  /// A table of the range of every parameter's gradient in the last update: absmax, headroom,
  /// zeros, subnormals. The values are those that travelled: scaled, in the wire dtype. Costs one
  /// pass over the flat buckets. May be called on any rank alone; with shard_optimizer: its share.
  std::string gradient_table() const;
  /// The fp32 masters by parameter name. At O0, O1 and O3 there are no masters, and these are the
  /// weights themselves, with 16 bits at O3. The tensors are views; with Precision::remainders or
  /// shard_optimizer they are copies. With shard_optimizer every rank must call it.
  std::vector<std::pair<std::string, at::Tensor>> masters() const;
  /// The moving averages of the weights by parameter name, then those of the floating-point buffers
  /// by name: fp32 or fp64. The tensors are views; with shard_optimizer those of the weights are
  /// copies, and every rank must call it. Throws Error without TrainerOptions().ema().
  std::vector<std::pair<std::string, at::Tensor>> averaged() const;
  /// Adopts weights that the program changed itself: loaded by torch::load, converted by to(dtype),
  /// or written through data() or a pointer. (In-place writes to a parameter are adopted without
  /// this call.) Sets the masters to the new weights. Parameters become again the tensors that the
  /// Trainer trains, in the dtype of its precision. A weight that equals its rounded master leaves
  /// the master unchanged. Before torch::load of an fp32 file into a 16-bit model, call
  /// model->to(torch::kFloat): otherwise LibTorch reads the values as 16-bit values.
  /// Every rank must call it, with the same weights. If weights differ between ranks, throws the
  /// same Error on every rank (exit code diverged). Throws the same Error on every rank if sizes
  /// changed.
  void adopt_weights();
  /// With TrainerOptions::local_updates: ends the round now, so that all ranks have the same
  /// weights. Call it before the model is evaluated or exported, and after the last update. Does
  /// nothing without local_updates, or if no update was made since the last exchange. Every rank
  /// must call it, between windows. Throws Error in the middle of a window.
  void finish_round();
  /// Adopts a change of requires_grad (layers thawed or frozen). Call it between windows. Without
  /// this call, the end of the next window throws Error. The Trainer then trains the parameters
  /// that are trainable now, and lays out the buckets again. Counters and loss scale do not change.
  ///   - A parameter that stays trainable keeps weight, master, moments and average bit for bit.
  ///   - A parameter that becomes trainable starts with its present weight and without moments. An
  ///     optimizer with one count of updates for all parameters continues that count.
  ///   - A parameter that becomes frozen keeps its weight.
  /// Snapshots hold which parameters are trainable, and resume() restores that. Every rank must
  /// call it, with the same trainable parameters; otherwise throws Error on every rank.
  void adopt_trainable();
  /// True if weights, masters and moments (unless sharded), frozen parameters, loss scale and
  /// update count have the same bits on every rank, and the model computes with these weights,
  /// which are the rounded masters. Every rank must call it.
  bool replicas_agree() const;
  using Memory = ArenaMemory;
  /// Memory use of this rank's arena, in bytes.
  Memory memory() const;
  /// The result of the activation budget in one line: predicted and measured peak, and the plan.
  /// Empty without a budget and before the first step. Of this rank.
  std::string activation_report() const;
  /// The result of TrainerOptions::memory as a table: what is held, where the states are, what is
  /// recomputed, the predicted and the measured peak. Empty without a budget and before there is a
  /// plan. Of this rank.
  std::string memory_report() const;
  /// A summary of one screen: model, precision, buckets, optimizer, memory. Empty on all ranks but
  /// rank 0.
  std::string summary() const;

  /// For lockstep's own libraries and tests.
  explicit Trainer(std::unique_ptr<detail::TrainerImpl> impl);
  detail::TrainerImpl& impl() const { return *impl_; }

 private:
  std::unique_ptr<detail::TrainerImpl> impl_;
};

}  // namespace lockstep
