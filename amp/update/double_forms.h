#pragma once

#include <lockstep/amp/update/adam_update.h>
#include <lockstep/amp/update/lamb_update.h>
#include <lockstep/amp/update/lion_update.h>
#include <lockstep/amp/update/sgd_update.h>

#include <cmath>

namespace lockstep::amp {

// The arithmetic of each optimizer on one element of an fp64 parameter, in host memory. AdamW, Adam
// and SGD do the operations of torch.optim in their order. Where LibTorch's kernels fuse a product
// and a sum, so does this code, by std::fma: the bits are those of torch.optim on every processor
// with fused multiply-add, and the same ones, slower, on a processor without. Square roots are
// LibTorch's own (at::sqrt), since those are not always rounded to nearest; so the optimizers that
// have them make two passes.

/// GradientScale in fp64.
struct DoubleScale {
  double factor;
  double limit;
  double operator()(double gradient) const {
    const double scaled = gradient * factor;
    return scaled > limit ? limit : (scaled < -limit ? -limit : scaled);
  }
};

/// from + weight * (to - from), as torch.lerp.
inline double lerp(double from, double to, double weight) {
  return weight < 0.5 ? std::fma(weight, to - from, from) : std::fma(weight - 1.0, to - from, to);
}

/// The first pass of Adam, AdamW and LAMB: moves the moments.
struct DoubleAdamMoments {
  DoubleScale scaled;
  double rest1, beta2, rest2;
  double l2 = 0.0;    // Adam: this times the weight is added to the gradient
  double keep = 1.0;  // AdamW: multiplies the weight

  DoubleAdamMoments(const AdamHyperparameters& h, const DoubleScale& scale)
      : scaled(scale), rest1(1.0 - h.beta1), beta2(h.beta2), rest2(1.0 - h.beta2) {}

  double operator()(double weight, double gradient, double& m, double& v) const {
    const double g = std::fma(l2, weight, scaled(gradient));
    m = lerp(m, g, rest1);
    v = std::fma(rest2 * g, g, v * beta2);
    return weight * keep;
  }
};

/// The second pass of Adam and AdamW. `root`: of the second moment.
struct DoubleAdamMove {
  double correction1, root_correction, eps, size;

  DoubleAdamMove(const AdamHyperparameters& h, const StepState& state)
      : correction1(1.0 - std::pow(h.beta1, static_cast<double>(state.update))),
        root_correction(std::pow(1.0 - std::pow(h.beta2, static_cast<double>(state.update)), 0.5)),
        eps(h.eps),
        size(-(state.rate(h.lr) / correction1)) {}

  double denominator(double root) const { return root / root_correction + eps; }
  double operator()(double weight, double root, double& m) const {
    return weight + size * m / denominator(root);
  }
};

/// The second pass of LAMB: returns the direction.
struct DoubleLambDirection {
  DoubleAdamMove adam;
  double weight_decay;

  double operator()(double weight, double root, double& m) const {
    return m / adam.correction1 / adam.denominator(root) + weight_decay * weight;
  }
};

/// The third pass of LAMB. `size`: learning rate times trust ratio.
struct DoubleLambMove {
  DoubleLambDirection direction;
  double size;

  double operator()(double weight, double root, double& m) const {
    return weight - size * direction(weight, root, m);
  }
};

struct DoubleSgd {
  DoubleScale scaled;
  double l2, lr;

  DoubleSgd(const SgdUpdate& update, const StepState& state, const DoubleScale& scale)
      : scaled(scale), l2(update.weight_decay), lr(state.rate(update.lr)) {}

  double operator()(double weight, double gradient) const {
    return std::fma(-lr, std::fma(l2, weight, scaled(gradient)), weight);
  }
};

struct DoubleMomentum {
  DoubleScale scaled;
  double l2, lr, keep, add, gradient_share, buffer_share;

  DoubleMomentum(const MomentumUpdate& update, const StepState& state, const DoubleScale& scale)
      : scaled(scale),
        l2(update.weight_decay),
        lr(state.rate(update.lr)),
        keep(state.update == 1 ? 0.0 : update.momentum),
        add(state.update == 1 ? 1.0 : 1.0 - update.dampening),
        gradient_share(update.nesterov ? 1.0 : 0.0),
        buffer_share(update.nesterov ? update.momentum : 1.0) {}

  double operator()(double weight, double gradient, double& buffer) const {
    const double decayed = std::fma(l2, weight, scaled(gradient));
    buffer = std::fma(add, decayed, buffer * keep);
    return std::fma(-lr, std::fma(buffer_share, buffer, gradient_share * decayed), weight);
  }
};

struct DoubleLion {
  DoubleScale scaled;
  double keep, lr, beta1, rest1, beta2, rest2;

  DoubleLion(const LionUpdate& update, const StepState& state, const DoubleScale& scale)
      : scaled(scale),
        keep(1.0 - state.rate(update.lr) * update.weight_decay),
        lr(state.rate(update.lr)),
        beta1(update.beta1),
        rest1(1.0 - update.beta1),
        beta2(update.beta2),
        rest2(1.0 - update.beta2) {}

  double operator()(double weight, double gradient, double& m) const {
    const double g = scaled(gradient);
    const double direction = std::fma(rest1, g, m * beta1);
    m = std::fma(rest2, g, m * beta2);
    return weight * keep - (direction > 0.0 ? lr : (direction < 0.0 ? -lr : 0.0));
  }
};

/// Calls the macro `apply` with each pass.
#define LOCKSTEP_FOR_EACH_DOUBLE_FORM(apply)                                            \
  apply(DoubleAdamMoments) apply(DoubleAdamMove) apply(DoubleSgd) apply(DoubleMomentum) \
      apply(DoubleLion) apply(DoubleLambDirection) apply(DoubleLambMove)

}  // namespace lockstep::amp
