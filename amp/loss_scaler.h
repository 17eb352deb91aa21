#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/loss_scaler_options.h>
#include <lockstep/amp/scaler_state.h>
#include <lockstep/collectives/communicator.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace lockstep::amp {

/// A loss scale that follows the overflow flag all ranks share.
///
/// Trainer uses one by itself. For a loop of one's own it is torch.amp.GradScaler, with the same
/// order of calls and any torch::optim optimizer:
///
///   lockstep::amp::LossScaler scaler(options, runtime.communicator());
///   optimizer.zero_grad();
///   scaler.scale(loss).backward();        // then DataParallel::finish(), where there is one
///   scaler.unscale_(optimizer);           // only to clip or look at gradients before the step
///   const bool stepped = scaler.step(optimizer);
///   scaler.update();
///
/// Several optimizers: step() each, then update() once: one that overflowed is not stepped, the
/// others are. Several losses, each with a LossScaler of its own: backward(loss, optimizer), then
/// step_with(optimizer, scalers), then update() of each.
///
/// The state lives on the device; scale(loss) and update(flag) never make the host wait, reading
/// value() does, and so does step(). Ranks: with a communicator unscale_(), backward() and step()
/// are collective and every rank comes to the same decision; without one the flags given to
/// update(flag) must be shared by the caller. Then the scale has the same bits everywhere.
/// Threads: one at a time.
/// Errors: Error for a wrong order of calls (says which call comes first) and for gradients that
/// cannot be unscaled; the latter on every rank.
/// Formula: see LossScalerOptions; the arithmetic is advance() in scaler_state.h.
class LossScaler {
 public:
  /// Throws Error for invalid options.
  explicit LossScaler(LossScalerOptions options = {}, c10::Device device = c10::kCPU);
  LossScaler(LossScalerOptions options, Communicator communicator, c10::Device device = c10::kCPU);
  LossScaler(LossScaler&&) = default;
  LossScaler& operator=(LossScaler&&) = default;

  /// loss in fp32, times the scale; 0-dimensional floating tensor in, 0-dimensional fp32 out.
  at::Tensor scale(const at::Tensor& loss);
  /// Tensors that come from a scaled loss, in fp32, divided by the scale; differentiable, for
  /// gradient penalties: the gradients of grad(scale(loss), weights, create_graph=true).
  std::vector<at::Tensor> unscaled(const std::vector<at::Tensor>& gradients) const;
  /// The scale as a 0-dimensional fp32 tensor on the device: a view that follows update().
  at::Tensor scale_tensor() const;

  /// Divides the optimizer's gradients by the scale, in place, and notes whether all are finite.
  /// At most once an optimizer and update; step() does it where it was not done. Gradients: fp32
  /// (fp16 and bf16 ones are refused: Trainer with O2 unscales those into fp32), dense or sparse;
  /// sparse ones are coalesced first, since duplicate entries can overflow in their sum.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// Steps unless a gradient was not finite on some rank; true if it stepped. Refused: LBFGS, whose
  /// closure would run several backwards in one step.
  bool step(torch::optim::Optimizer& optimizer);
  /// Advances the scale after step() of all optimizers; starts the next round.
  void update();

  /// For several losses with a scaler each: runs backward of the scaled loss and adds its unscaled
  /// gradients to the optimizer's grad(). `finish` completes the gradients before they are
  /// unscaled, e.g. DataParallel::finish(). May be called for several micro-batches.
  void backward(const at::Tensor& loss, torch::optim::Optimizer& optimizer,
                const std::function<void()>& finish = {});
  /// Steps unless one of the `scalers`, all used with this optimizer, saw an overflow in it. Each
  /// of them is then to be updated: only the ones that overflowed back off.
  static bool step_with(torch::optim::Optimizer& optimizer,
                        const std::vector<LossScaler*>& scalers);

  /// After each decided update: `overflow` is one fp32 element, 0 for clean.
  void update(const at::Tensor& overflow);
  void update(bool overflow);
  /// The same, but that nothing changes where `unless`, one element on the device, is not 0.
  void update(const at::Tensor& overflow, const at::Tensor& unless);

  /// The scale. Waits for the device.
  double value() const;
  /// All counters; of a disabled scaler: none, with scale 0. Waits for the device.
  ScalerState state() const;
  /// Takes over a saved state; a disabled scaler ignores it. Throws Error where it cannot come from
  /// an enabled scaler: scale not finite or not positive, negative counters.
  void load(const ScalerState& state);

  const LossScalerOptions& options() const { return options_; }
  /// The state in device memory, for kernels.
  ScalerState* device_state();
  /// What is there, also of a disabled scaler. Waits for the device.
  ScalerState raw_state() const;

 private:
  enum class Stage { unscaled, stepped };
  struct Round {
    const torch::optim::Optimizer* optimizer;
    Stage stage;
    bool overflow;
  };
  Round* find(const torch::optim::Optimizer& optimizer);
  /// The optimizer's gradients over the scale; true where one is not finite on some rank.
  bool unscale_gradients(torch::optim::Optimizer& optimizer);
  bool overflow_on_any_rank(bool overflow, const std::optional<std::string>& problem);
  void store(const ScalerState& state);
  void advance_by(const at::Tensor& overflow);

  LossScalerOptions options_;
  std::optional<Communicator> communicator_;
  at::Tensor storage_;  // sizeof(ScalerState) bytes on the device
  bool scaled_ = false;
  std::vector<Round> rounds_;  // the optimizers used since the last update()
};

/// LossScalerOptions as the plain data that advance() takes. Throws Error for invalid options.
ScalerRule scaler_rule(const LossScalerOptions& options);

/// The state before the first update.
ScalerState initial_state(const LossScalerOptions& options);

/// Throws Error (exit code non_finite) once as many updates in a row were skipped as
/// LossScalerOptions::max_consecutive_skips says; says what the scale was and which cause that
/// points to.
void check_skip_budget(const LossScalerOptions& options, const ScalerState& state);

/// True within a row of skipped updates if one more spends that budget.
bool next_skip_spends_budget(const LossScalerOptions& options, const ScalerState& state);

}  // namespace lockstep::amp
