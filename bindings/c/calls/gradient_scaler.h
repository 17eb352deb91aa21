#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/loss_scaler.h>
#include <torch/optim/optimizer.h>

#include <vector>

namespace lockstep::c {

/// An amp::LossScaler for gradients that the program has computed, and for its own optimizer.
/// Ranks, errors: as LossScaler.
class GradientScaler {
 public:
  GradientScaler(const amp::LossScalerOptions& options, const Communicator& communicator)
      : scaler_(options, communicator) {}

  /// Divides the gradients by the scale, in place; false if one is not finite on some rank.
  bool unscale(const std::vector<at::Tensor>& gradients);
  void update() { scaler_.update(); }
  amp::ScalerState state() const { return scaler_.state(); }
  void load(const amp::ScalerState& state) { scaler_.load(state); }

 private:
  /// What LossScaler takes gradients from. Its step changes nothing.
  class Gradients final : public torch::optim::Optimizer {
   public:
    Gradients();
    void set(const std::vector<at::Tensor>& gradients);
    at::Tensor step(LossClosure closure = nullptr) override;
  };

  amp::LossScaler scaler_;
  Gradients gradients_;
};

}  // namespace lockstep::c
