#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/non_finite.h>

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::amp {

/// Finds the first operator of a forward and backward that makes a non-finite value out of finite
/// inputs. C++ modules have no hooks, so the tracer observes operators (at::RecordFunction). It
/// identifies a module by the parameters that an operator reads, also through views and casts of
/// them. A deliberate infinity (masked_fill with -inf, full) is not reported, because it is an
/// argument of the operator. A NaN or +inf scalar in a calculation (loss * (1.0 / 0)) is reported,
/// as Origin::number.
///
///   NonFiniteTracer tracer(model);
///   const auto loss = closure();
///   tracer.begin_backward();
///   torch::autograd::grad({loss}, parameters);
///   if (tracer.first()) { ... tracer.first()->describe() ... }
///
/// Cost: one pass over the output of every operator while the tracer exists, nothing before or
/// after.
/// Threads: watches the thread that made it, and the threads that run its backward. Ranks: local.
class NonFiniteTracer {
 public:
  [[nodiscard]] explicit NonFiniteTracer(const Model& model);
  ~NonFiniteTracer();
  NonFiniteTracer(const NonFiniteTracer&) = delete;
  NonFiniteTracer& operator=(const NonFiniteTracer&) = delete;

  /// Call between forward and backward.
  void begin_backward();

  const std::optional<NonFinite>& first() const;
  /// The tensors that forward read but did not make, and that are no parameters or buffers: the
  /// batch.
  const std::vector<at::Tensor>& inputs() const;

 private:
  class Watch;
  std::shared_ptr<Watch> watch_;
  struct Registration;
  std::unique_ptr<Registration> registration_;
};

}  // namespace lockstep::amp
