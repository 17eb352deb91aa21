#pragma once

#include <lockstep/checkpointing/snapshot/save_report.h>

#include <cstdint>
#include <memory>

namespace lockstep {

/// What one step did. Host facts are there at once; values that live on the device are read when
/// asked for, which on a GPU waits for the step.
class StepReport {
 public:
  /// True if this micro-batch completed a window, so an update was decided.
  bool closes_update() const { return closes_update_; }
  /// Number of real updates made so far, this one included.
  int64_t update() const { return update_; }
  /// Micro-batches run so far.
  int64_t micro_batch() const { return micro_batch_; }
  /// True if the update was skipped on all ranks because a gradient was not finite on one of them.
  bool skipped() const { return skipped_; }
  /// This rank's loss, unscaled, of the last micro-batch: the mean, or sum / weight.
  double loss() const { return loss_; }
  /// Norm of the averaged, unscaled gradient before clipping; NaN if not measured or skipped.
  double grad_norm() const { return grad_norm_; }
  /// The loss scale that this step used.
  double scale() const { return scale_; }
  double learning_rate() const { return learning_rate_; }
  /// With uneven_data: no rank had a micro-batch.
  bool all_out_of_data() const { return all_out_of_data_; }
  /// How a save() ended that was on its way: its error did not stop training. None: none ended.
  const snapshot::SaveReport* saved() const { return saved_.get(); }
  /// Wall seconds of forward and backward, of waiting for communication after backward, and of the
  /// update.
  double compute_seconds() const { return compute_seconds_; }
  double exposed_communication_seconds() const { return communication_seconds_; }
  double update_seconds() const { return update_seconds_; }

 private:
  friend class Step;
  friend class Trainer;
  bool closes_update_ = false;
  bool skipped_ = false;
  bool all_out_of_data_ = false;
  int64_t update_ = 0;
  int64_t micro_batch_ = 0;
  double loss_ = 0.0;
  double grad_norm_ = 0.0;
  double scale_ = 1.0;
  double learning_rate_ = 0.0;
  double compute_seconds_ = 0.0;
  double communication_seconds_ = 0.0;
  double update_seconds_ = 0.0;
  std::shared_ptr<const snapshot::SaveReport> saved_;
};

}  // namespace lockstep
