#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/checkpointing/snapshot/save_report.h>

#include <cstdint>
#include <memory>

namespace lockstep {

class DecisionCopy;

/// What one step did. What the host knows is there at once; what lives on the device (marked D) is
/// read when asked for, which on a GPU waits for that step, and only for it. A later step changes
/// nothing in the report of an earlier one.
class StepReport {
 public:
  /// True if this micro-batch completed a window, so an update was decided.
  bool closes_update() const { return closes_update_; }
  /// D. Number of real updates made so far, this one included.
  int64_t update() const;
  /// Micro-batches run so far.
  int64_t micro_batch() const { return micro_batch_; }
  /// D. True if the update was skipped on all ranks because a gradient was not finite on one of
  /// them (on a device also if a rank failed: the next step throws its error on all ranks).
  bool skipped() const;
  /// D. This rank's loss, unscaled, of the last micro-batch: the mean, or sum / weight, or the sum
  /// of several losses. On a GPU it
  /// waits for all that the caller's stream holds by now.
  double loss() const;
  /// D. Norm of the averaged, unscaled gradient before clipping; NaN if not measured or skipped.
  double grad_norm() const;
  /// D. The loss scale that this step used; with several losses the unit of their sum.
  double scale() const;
  /// D. The base group's, with the schedule's factor.
  double learning_rate() const;
  /// With uneven_data: no rank had a micro-batch.
  bool all_out_of_data() const { return all_out_of_data_; }
  /// How a save() ended that was on its way: its error did not stop training. None: none ended.
  const snapshot::SaveReport* saved() const { return saved_.get(); }
  /// Wall seconds of the host in forward and backward, in waiting for communication after backward,
  /// and in the update.
  double compute_seconds() const { return compute_seconds_; }
  double exposed_communication_seconds() const { return communication_seconds_; }
  double update_seconds() const { return update_seconds_; }

 private:
  friend class Step;
  friend struct Training;
  bool closes_update_ = false;
  bool decided_ = false;  // decision_ is that of this window, else of the one before
  bool all_out_of_data_ = false;
  int64_t micro_batch_ = 0;
  std::shared_ptr<const DecisionCopy> decision_;
  at::Tensor loss_;
  double base_learning_rate_ = 0.0;
  Schedule schedule_;
  double compute_seconds_ = 0.0;
  double communication_seconds_ = 0.0;
  double update_seconds_ = 0.0;
  std::shared_ptr<const snapshot::SaveReport> saved_;
};

}  // namespace lockstep
