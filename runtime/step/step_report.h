#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/checkpointing/snapshot/save_report.h>

#include <cstdint>
#include <memory>

namespace lockstep {
namespace detail {
class DecisionCopy;
class Step;
struct TrainerImpl;
}  // namespace detail

/// The result of one step. Values that the host knows are available at once. Values marked D live
/// on the device and are read on request: on a GPU the call waits for this step, and only for this
/// step. Later steps do not change the report of an earlier step.
class StepReport {
 public:
  /// True if this micro-batch completed a window, so that an update was made or skipped.
  bool closes_update() const { return closes_update_; }
  /// D. Number of real updates so far, including the update of this step.
  int64_t update() const;
  /// Number of micro-batches so far.
  int64_t micro_batch() const { return micro_batch_; }
  /// D. True if all ranks skipped the update because the reduced gradient has an inf or NaN (with
  /// several losses, or local_updates: because a gradient of some rank has). On a device also true
  /// if a rank failed: the next step then throws that rank's error on all ranks.
  bool skipped() const;
  /// D. This rank's loss of the last micro-batch, unscaled: the mean, or sum / weight, or the sum
  /// of several losses. On a GPU this call waits for all work that is queued on the caller's
  /// stream.
  double loss() const;
  /// D. The mean loss of the update that this step closed, over all micro-batches of all ranks,
  /// unscaled; the same on every rank. Of means: their mean, with equal weights. Of Loss::sum: the
  /// sum of all sums, divided by the sum of all weights. NaN if the step closed no window, if
  /// nothing counted in the window, or if a rank failed. The ranks share this number with their
  /// flags of overflow, so that it costs no collective.
  double mean_loss() const;
  /// D. Norm of the averaged, unscaled gradient before clipping; with local_updates, of this rank's
  /// own gradient. NaN if not measured or skipped.
  double grad_norm() const;
  /// D. The loss scale that this step used; with several losses, the scale of the sum of their
  /// gradients.
  double scale() const;
  /// D. The learning rate of group 0, with the schedule's factor.
  double learning_rate() const;
  /// With uneven_data: true if no rank had a micro-batch.
  bool all_out_of_data() const { return all_out_of_data_; }
  /// The result of an asynchronous save() that ended by this step. An error of the save did not
  /// stop training. Null if no save ended.
  const snapshot::SaveReport* saved() const { return saved_.get(); }
  /// Wall-clock seconds on the host: in forward and backward; in waiting for communication after
  /// backward; in the update.
  double compute_seconds() const { return compute_seconds_; }
  double exposed_communication_seconds() const { return communication_seconds_; }
  double update_seconds() const { return update_seconds_; }
  /// Wall-clock seconds for which this rank's training loop waited for batches of Runtime::loader
  /// or local_loader, in this window so far; and their share, from 0 to 1, of the time since the
  /// end of the last window. With one micro-batch per update, these are the wait for this step's
  /// batch and its share of the time that the step took in all.
  double data_wait_seconds() const { return data_wait_seconds_; }
  double data_wait_share() const {
    return elapsed_seconds_ > 0.0 ? data_wait_seconds_ / elapsed_seconds_ : 0.0;
  }

 private:
  friend class detail::Step;
  friend struct detail::TrainerImpl;
  bool closes_update_ = false;
  bool all_out_of_data_ = false;
  double weight_ = 0.0;  // of all ranks' losses in the window; 0: decision_ is of the window before
  int64_t micro_batch_ = 0;
  std::shared_ptr<const detail::DecisionCopy> decision_;
  at::Tensor loss_;
  double base_learning_rate_ = 0.0;
  Schedule schedule_;
  double compute_seconds_ = 0.0;
  double communication_seconds_ = 0.0;
  double update_seconds_ = 0.0;
  double data_wait_seconds_ = 0.0;
  double elapsed_seconds_ = 0.0;  // since the end of the last window
  std::shared_ptr<const snapshot::SaveReport> saved_;
};

}  // namespace lockstep
