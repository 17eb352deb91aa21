#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/non_finite.h>

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::amp {

/// Watches every operator of a forward and backward and finds the first that makes a non-finite
/// value out of finite ones. C++ modules have no hooks: operators are observed instead
/// (at::RecordFunction), and a module is known by its parameters that an operator reads, also
/// through views and casts of them. A deliberate infinity (masked_fill with -inf, full) is no find:
/// it is given as an argument. A NaN or +inf that the program calculates with (loss * (1.0 / 0)) is
/// one, with a cause of its own.
///
///   NonFiniteTracer tracer(model);
///   const auto loss = closure();
///   tracer.begin_backward();
///   torch::autograd::grad({loss}, parameters);
///   if (tracer.first()) { ... tracer.first()->describe() ... }
///
/// Costs a pass over every operator's output while it lives, nothing before or after.
/// Threads: watches the thread it was made on and the threads that run its backward. Ranks: local.
class NonFiniteTracer {
 public:
  explicit NonFiniteTracer(const Model& model);
  ~NonFiniteTracer();
  NonFiniteTracer(const NonFiniteTracer&) = delete;
  NonFiniteTracer& operator=(const NonFiniteTracer&) = delete;

  /// Between forward and backward.
  void begin_backward();

  const std::optional<NonFinite>& first() const;
  /// The tensors that forward read and neither made nor has as parameter or buffer: the batch.
  const std::vector<at::Tensor>& inputs() const;

 private:
  class Watch;
  std::shared_ptr<Watch> watch_;
  struct Registration;
  std::unique_ptr<Registration> registration_;
};

}  // namespace lockstep::amp
