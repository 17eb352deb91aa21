#pragma once

#include <lockstep/amp/impl/optimizer_list.h>

#include <cmath>
#include <cstdint>

namespace lockstep::testing {

// Hyper-parameters and the formula in fp64 of every functor of amp/impl/optimizer_list.h. Tests
// of the kernels run over that list. No LibTorch here: kernel_launches_test.cpp is built without
// it.

constexpr amp::AdamHyperparameters kAdamSample{1e-2, 0.9, 0.99, 1e-8, 0.1};

/// The functor with all of its hyper-parameters in use.
template <typename Update>
Update sample();
template <>
inline amp::AdamWUpdate sample() {
  return {kAdamSample};
}
template <>
inline amp::AdamUpdate sample() {
  return {kAdamSample};
}
template <>
inline amp::LionUpdate sample() {
  return {1e-3, 0.9, 0.99, 0.1};
}
template <>
inline amp::SgdUpdate sample() {
  return {1e-2, 0.1};
}
template <>
inline amp::MomentumUpdate sample() {
  return {1e-2, 0.9, 0.1, 0.1, true};
}

/// The functor's learning rate.
template <typename Update>
double& rate_of(Update& update) {
  return update.lr;
}
template <bool kDecoupledDecay>
double& rate_of(amp::AdamFamilyUpdate<kDecoupledDecay>& update) {
  return update.hyperparameters.lr;
}

struct PlainElement {
  double weight = 0.0;
  double moments[2] = {0.0, 0.0};
};

// formula(): update number `step`, counted from 1, of one element with this gradient.

template <bool kDecoupledDecay>
void formula(const amp::AdamFamilyUpdate<kDecoupledDecay>& update, double gradient, int64_t step,
             PlainElement& element) {
  const auto [lr, beta1, beta2, eps, weight_decay] = update.hyperparameters;
  auto& [m, v] = element.moments;
  if (kDecoupledDecay) {
    element.weight -= lr * weight_decay * element.weight;
  } else {
    gradient += weight_decay * element.weight;
  }
  m = beta1 * m + (1.0 - beta1) * gradient;
  v = beta2 * v + (1.0 - beta2) * gradient * gradient;
  const auto updates = static_cast<double>(step);
  const double first = m / (1.0 - std::pow(beta1, updates));
  const double second = v / (1.0 - std::pow(beta2, updates));
  element.weight -= lr * first / (std::sqrt(second) + eps);
}

inline void formula(const amp::LionUpdate& update, double gradient, int64_t,
                    PlainElement& element) {
  double& m = element.moments[0];
  const double direction = update.beta1 * m + (1.0 - update.beta1) * gradient;
  m = update.beta2 * m + (1.0 - update.beta2) * gradient;
  const double sign = direction > 0.0 ? 1.0 : direction < 0.0 ? -1.0 : 0.0;
  element.weight -= update.lr * (sign + update.weight_decay * element.weight);
}

inline void formula(const amp::SgdUpdate& update, double gradient, int64_t, PlainElement& element) {
  element.weight -= update.lr * (gradient + update.weight_decay * element.weight);
}

inline void formula(const amp::MomentumUpdate& update, double gradient, int64_t step,
                    PlainElement& element) {
  double& buffer = element.moments[0];
  gradient += update.weight_decay * element.weight;
  buffer = step == 1 ? gradient : update.momentum * buffer + (1.0 - update.dampening) * gradient;
  element.weight -= update.lr * (update.nesterov ? gradient + update.momentum * buffer : buffer);
}

}  // namespace lockstep::testing
