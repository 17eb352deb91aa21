#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/step_report.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

class Trainer;

/// What a RunLog writes, and how often. Ranks: the same on every rank.
struct RunLogOptions {
  /// step() writes one row for this many updates. Requires: >= 1.
  TORCH_ARG(int64_t, log_every) = 10;
  /// Samples of one update on all ranks. The log then has samples_per_second. Requires: >= 0.
  /// 0: unknown.
  TORCH_ARG(int64_t, samples_per_update) = 0;
  /// True: each rank writes a log, rank r to `FOLDER/rank<r>`. False: rank 0 writes to FOLDER.
  TORCH_ARG(bool, every_rank) = false;
  /// True: rows have flops_per_second and mfu.
  TORCH_ARG(bool, mfu) = false;
  /// Floating-point operations of one update on this rank. Requires: >= 0. 0: a FlopCounter counts
  /// what the thread computes from the making of the log until its first update is closed; so make
  /// the log just before the training loop.
  TORCH_ARG(double, flops_per_update) = 0.0;
  /// FLOPs per second that this rank's processor can do, for example 989e12. Requires: >= 0.
  /// 0: measure_peak_flops() in the dtype of the Trainer's matrix products, when the log is made.
  TORCH_ARG(double, peak_flops) = 0.0;
  /// True: rows also have gradient_norm/NAME and weight_norm/NAME of each parameter that trains: of
  /// its averaged, unscaled gradient before clipping, and of the weight after the update. Costs one
  /// pass over both for each row. Refused with shard_optimizer and local_updates, where no rank has
  /// these gradients.
  TORCH_ARG(bool, layers) = false;
  TORCH_ARG(bool, tensorboard) = true;
  TORCH_ARG(bool, jsonl) = true;
  TORCH_ARG(bool, csv) = true;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
};

/// Writes the numbers of a training run to a folder, for TensorBoard and for programs.
///
///   lockstep::RunLog log(trainer, "runs/first");
///   for (auto& batch : loader) {
///     log.step(trainer.step([&] {...}));
///   }
///   log.log("validation/loss", result["loss"]);
///
/// Files: events.out.tfevents.* for `tensorboard --logdir`; log.jsonl, one object per row with
/// "update", "time" (seconds since 1970) and the values, null for NaN and inf; log.csv with one
/// value per line: update,time,name,value.
/// A row of step() has, of this rank unless stated otherwise: loss (of the last micro-batch),
/// mean_loss (of all ranks and micro-batches of the update), learning_rate, loss_scale,
/// skipped_updates (so far), gradient_norm (of StepReport; NaN after skips), updates_per_second,
/// samples_per_second, data_wait_share (see watch()), exposed_communication_share, host_memory_mib
/// (resident), device_memory_mib (most allocated to tensors), and with RunLogOptions::mfu
/// flops_per_second and mfu (model FLOPs utilisation: flops_per_second / peak_flops). The rates and
/// shares are of the time since the last row. A number that is not known is left out.
/// Several ranks that compute on the host compare once in 100 updates how long each needed, over
/// these updates, until it was at the all-reduce: data, forward, backward, the program. The next
/// row has slowest_rank, the rank that needed longest, and slowest_rank_ratio, its time divided by
/// that of the median rank (of an even number of ranks the lower one).
///
/// A resumed run continues the log of its folder. The first row that a program writes decides
/// where: rows of later updates, which were made and lost, are removed from log.jsonl and log.csv,
/// and TensorBoard drops them. The earlier file is kept as log.jsonl.aside or log.csv.aside. So a
/// run that starts from the beginning in the folder of another run also begins a new log.
///
/// The training loop never waits for a disk error: a full disk is reported on standard error, and
/// rows are missing until there is space. On a device the log waits for a step at most once in
/// `log_every` updates; values of log() stay in memory until then, or until flush().
/// Ranks: every rank makes one with the same arguments; then local. Threads: one. The Trainer must
/// live as long as the log. Throws the same Error on every rank if a file cannot be opened.
class RunLog {
 public:
  RunLog(const Trainer& trainer, const std::string& folder, const RunLogOptions& options = {});
  /// Calls flush().
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Adds data_wait_share to the rows of step(): how much of the time the loop waited for batches
  /// of this loader. The loader must live as long as the log.
  template <typename Dataset>
  RunLog& watch(const Loader<Dataset>& loader) {
    watch_wait([&loader] { return loader.wait_seconds(); });
    return *this;
  }

  /// Takes the report of a step. Call it after every step() or update() of the Trainer; does
  /// nothing for a report that does not close its window.
  void step(const StepReport& report);
  /// Adds a value at the last update. A slash groups names in TensorBoard. Throws Error for the
  /// names "update" and "time", which each row has itself.
  void log(const std::string& name, double value);
  /// Adds a text, the distribution of a tensor's values (those that are finite), or a picture at
  /// the last update, for TensorBoard alone. `image`: [3, height, width], [1, height, width] or
  /// [height, width], uint8 or floating-point numbers from 0 to 1. A tensor on a device is read at
  /// once, which waits for it. Throws Error for a tensor of another shape or dtype.
  void log_text(const std::string& name, const std::string& text);
  void log_histogram(const std::string& name, const at::Tensor& values);
  void log_image(const std::string& name, const at::Tensor& image);
  /// Writes what is in memory. On a device it waits for the last step.
  void flush();

 private:
  struct Writing;
  void watch_wait(std::function<double()> seconds);

  std::unique_ptr<Writing> writing_;  // null on ranks that do not write
};

}  // namespace lockstep
