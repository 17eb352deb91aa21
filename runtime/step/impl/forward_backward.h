#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/impl/weight_casts.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/step/impl/loss_scales.h>
#include <lockstep/runtime/step/impl/non_finite_diagnosis.h>
#include <lockstep/runtime/step/impl/norm_notice.h>
#include <lockstep/runtime/step/impl/reducer.h>
#include <lockstep/runtime/trainer_options.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// No. 1 in the order of a step (docs/architecture.md): the closure of one micro-batch under
/// autocast, and the backward of its scaled loss. Ranks: local. Threads: one.
class ForwardBackward {
 public:
  /// `scaler`: that of the loss; with several losses, of the unit in which their sum travels.
  ForwardBackward(const TrainerOptions& options, c10::Device device, amp::LossScaler& scaler,
                  const std::vector<ModelTensor>& parameters);

  /// Runs the first forward under autocast under `notice`, which prints what it finds.
  void watch_norms(NormNotice notice) { norm_notice_ = std::move(notice); }
  /// Casts each weight once for all forwards until drop_casts().
  void share_casts();
  void drop_casts() { weight_casts_.reset(); }
  /// Runs the closure, under autocast if asked, and checks its loss. Keeps a copy of the loss.
  Loss forward(const std::function<Loss()>& closure, bool under_autocast);
  /// Runs the only backward whose gradients `reducer` takes. If weights were written after the loss
  /// was computed, the Error says so.
  void backward(const Loss& loss, Reducer& reducer);
  /// Runs the closure and its backward for `diagnosis`, on copies: the real step is not changed.
  void replay(const std::function<Loss()>& closure, NonFiniteDiagnosis& diagnosis,
              int64_t micro_batch);
  void end_window();
  bool is_in_closure() const { return in_closure_; }

  /// Autocast as the precision wants it, until the returned region is destroyed.
  amp::Autocast autocast() const;
  /// The last loss: fp64, 0-dimensional, on the device. A sum is divided by its weight.
  const at::Tensor& last_loss() const { return last_loss_; }
  void set_last_loss(at::Tensor loss) { last_loss_ = std::move(loss); }
  /// The sum of the losses of the window so far, of Loss::sum undivided: fp64, 0-dimensional, on
  /// the device. Undefined if there was none.
  const at::Tensor& loss_sum() const { return loss_sum_; }
  LossScales& scales() { return scales_; }
  /// Throws Error if there is no such loss.
  const amp::LossScaler& scaler_of(int64_t loss) const;

 private:
  void run(const Loss& loss, Reducer& reducer);
  Loss under_autocast(const std::function<Loss()>& closure);

  Precision precision_;
  c10::Device device_;
  int64_t accumulate_;
  amp::LossScaler& scaler_;
  LossScales scales_;
  amp::WeightSet weights_;
  std::optional<NormNotice> norm_notice_;
  std::optional<amp::WeightCastScope> weight_casts_;
  at::Tensor last_loss_;
  at::Tensor loss_sum_;
  bool in_closure_ = false;
};

}  // namespace lockstep::detail
