#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/loss_scaler_options.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/amp/impl/scaler_state.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace lockstep {
class Communicator;
}

namespace lockstep::amp {

/// A loss scale that is driven by an overflow flag which all ranks share.
///
/// Trainer has its own. In a hand-written loop, use LossScaler like torch.amp.GradScaler: same
/// order of calls, any torch::optim optimizer:
///
///   lockstep::amp::LossScaler scaler(options, runtime.communicator());
///   optimizer.zero_grad();
///   scaler.scale(loss).backward();        // then DataParallel::finish(), if it is used
///   scaler.unscale_(optimizer);           // only to clip or inspect gradients before the step
///   const bool stepped = scaler.step(optimizer);
///   scaler.update();
///
/// Several optimizers: call step() for each, then update() once. An optimizer whose gradients
/// overflowed is not stepped; the others are. Several losses, each with its own LossScaler: call
/// backward(loss, optimizer) for each, then step_with(optimizer, scalers), then update() of each
/// scaler.
///
/// The state is in device memory. scale(loss) and update(flag) never make the host wait; value()
/// and step() do. Ranks: with a communicator, unscale_(), backward() and step() are collective, and
/// every rank makes the same decision. Without one, the caller must pass update(flag) the same flag
/// on every rank. Either way the scale has the same bits on every rank. Threads: one at a time.
/// Errors: Error for a wrong order of calls (the message says which call comes first), and for
/// gradients that cannot be unscaled; the latter is thrown on every rank.
/// Formula: see LossScalerOptions; the arithmetic is advance() in scaler_state.h.
class LossScaler {
 public:
  /// Both constructors throw Error for invalid options.
  explicit LossScaler(LossScalerOptions options = {}, c10::Device device = c10::kCPU);
  LossScaler(LossScalerOptions options, Communicator communicator, c10::Device device = c10::kCPU);
  LossScaler(LossScaler&&) = default;
  LossScaler& operator=(LossScaler&&) = default;

  /// The loss in fp32, times the scale. Takes a 0-dimensional floating tensor, returns a
  /// 0-dimensional fp32 tensor.
  at::Tensor scale(const at::Tensor& loss);
  /// Divides tensors that come from a scaled loss by the scale, in fp32. Differentiable. For
  /// gradient penalties: pass the gradients of grad(scale(loss), weights, create_graph=true).
  std::vector<at::Tensor> unscaled(const std::vector<at::Tensor>& gradients) const;
  /// The scale as a 0-dimensional fp32 tensor on the device: a view, so update() changes its value.
  at::Tensor scale_tensor() const;

  /// Divides the gradients of the optimizer by the scale, in place, and records whether all are
  /// finite. At most once per optimizer and update; step() calls it if it was not called. Gradients
  /// must be fp32, dense or sparse. fp16 and bf16 gradients are refused; a Trainer at O2 unscales
  /// those into fp32. Sparse gradients are coalesced first, because the sum of duplicate entries
  /// can overflow.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// Steps the optimizer unless a gradient was not finite on some rank; returns true if it stepped.
  /// LBFGS is refused: its closure would run several backwards in one step.
  bool step(torch::optim::Optimizer& optimizer);
  /// Advances the scale. Call once, after step() of all optimizers.
  void update();

  /// For several losses with one scaler each: runs backward of the scaled loss and adds its
  /// unscaled gradients to grad() of the parameters. `finish` is called before unscaling and must
  /// complete the gradients, e.g. DataParallel::finish(). May be called for several micro-batches.
  void backward(const at::Tensor& loss, torch::optim::Optimizer& optimizer,
                const std::function<void()>& finish = {});
  /// Steps the optimizer unless one of the `scalers`, all used with this optimizer, recorded an
  /// overflow for it. Then call update() of each scaler: only those that recorded an overflow back
  /// off.
  static bool step_with(torch::optim::Optimizer& optimizer,
                        const std::vector<LossScaler*>& scalers);

  /// Advances the scale after an update was made or skipped. `overflow`: one fp32 element, 0 for no
  /// overflow.
  void update(const at::Tensor& overflow);
  void update(bool overflow);

  /// The current scale. Waits for the device.
  double value() const;
  /// The scale and all counters; for a disabled scaler scale 0 and no counts. Waits for the device.
  ScalerState state() const;
  /// Restores a saved state; a disabled scaler ignores it. Throws Error if an enabled scaler cannot
  /// have saved it: a scale that is not finite or not positive, negative counters.
  void load(const ScalerState& state);

  const LossScalerOptions& options() const { return options_; }

 private:
  enum class Stage { unscaled, stepped };
  struct Round {
    const torch::optim::Optimizer* optimizer;
    Stage stage;
    bool overflow;
  };
  Round* find(const torch::optim::Optimizer& optimizer);
  /// Divides the gradients of the optimizer by the scale; true if one is not finite on some rank.
  bool unscale_gradients(torch::optim::Optimizer& optimizer);
  /// The ScalerState on the device, which a Trainer's step advances itself.
  friend at::Tensor state_bytes(LossScaler& scaler);
  void store(const ScalerState& state);
  void advance_by(const at::Tensor& overflow);

  LossScalerOptions options_;
  std::shared_ptr<const Communicator> communicator_;
  at::Tensor storage_;  // sizeof(ScalerState) bytes on the device
  bool scaled_ = false;
  std::vector<Round> rounds_;  // optimizers used since the last update()
};

/// Converts LossScalerOptions to the plain data that advance() takes. Throws Error for invalid
/// options.
ScalerRule scaler_rule(const LossScalerOptions& options);

/// The state before the first update.
ScalerState initial_state(const LossScalerOptions& options);

/// Throws Error (exit code non_finite) once LossScalerOptions::max_consecutive_skips updates in a
/// row were skipped. The message gives the scale and the likely cause.
void check_skip_budget(const LossScalerOptions& options, const ScalerState& state);

/// True if the last update was skipped and one more skip would spend the budget.
bool next_skip_spends_budget(const LossScalerOptions& options, const ScalerState& state);

}  // namespace lockstep::amp
