#include <lockstep/amp/layers/row_kernels.h>
#include <lockstep/amp/layers/smooth_math.h>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/layers/row_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Compiled once for each instruction set: the compiler vectorises the loops for it.
HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {

#undef LOCKSTEP_ROW
#define LOCKSTEP_ROW HWY_INLINE
#include <lockstep/amp/layers/row_arithmetic-inl.h>

/// Fixed lanes that the compiler turns into vectors.
struct Lanes {
  static constexpr int64_t kLanes = 16;

  template <typename Term>
  HWY_INLINE float sum(int64_t size, const Term& term) const {
    float lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) {
        lanes[k] += term(i + k);
      }
    }
    for (; i < size; ++i) {
      lanes[i % kLanes] += term(i);
    }
    float sum = 0.0F;
    for (const float lane : lanes) {
      sum += lane;
    }
    return sum;
  }

  template <typename Term>
  HWY_INLINE float max(int64_t size, const Term& term) const {
    float lanes[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) {
      lanes[k] = term(k < size ? k : 0);
    }
    for (int64_t i = 0; i < size; ++i) {
      lanes[i % kLanes] = term(i) > lanes[i % kLanes] ? term(i) : lanes[i % kLanes];
    }
    float largest = lanes[0];
    for (const float lane : lanes) {
      largest = lane > largest ? lane : largest;
    }
    return largest;
  }

  template <typename Body>
  HWY_INLINE void each(int64_t size, const Body& body) const {
    for (int64_t i = 0; i < size; ++i) {
      body(i);
    }
  }
};

RowNorm measure(const float* x, int64_t size, bool centred, double eps) {
  return measure_row_with(
      Lanes(), size, [=](int64_t i) { return x[i]; }, centred, eps);
}

void norm(float* y, const float* x, const float* weight, const float* bias, int64_t size,
          const RowNorm& norm) {
  const RowNorm row = norm;
  if (weight == nullptr) {
    for (int64_t i = 0; i < size; ++i) {
      y[i] = normed(x[i], row);
    }
  } else if (bias == nullptr) {
    for (int64_t i = 0; i < size; ++i) {
      y[i] = normed(x[i], row) * weight[i];
    }
  } else {
    for (int64_t i = 0; i < size; ++i) {
      y[i] = normed(x[i], row) * weight[i] + bias[i];
    }
  }
}

void norm_backward(float* dx, const float* dy, const float* x, const float* weight,
                   float* weight_gradient, float* bias_gradient, int64_t size, const RowNorm& norm,
                   bool centred) {
  const RowNorm row = norm;
  for (int64_t i = 0; weight_gradient != nullptr && i < size; ++i) {
    weight_gradient[i] += dy[i] * normed(x[i], row);
  }
  for (int64_t i = 0; bias_gradient != nullptr && i < size; ++i) {
    bias_gradient[i] += dy[i];
  }
  norm_backward_with(
      Lanes(), size, [=](int64_t i) { return x[i]; },
      [=](int64_t i) { return weight == nullptr ? dy[i] : dy[i] * weight[i]; },
      [=](int64_t i, float value) { dx[i] = value; }, row, centred);
}

RowSums sums(const float* x, int64_t size) {
  return sum_row_with(Lanes(), size, [=](int64_t i) { return x[i]; });
}

void softmax(float* dx, const float* x, int64_t size, float log_sum_exp, float factor, float rest) {
  for (int64_t i = 0; i < size; ++i) {
    dx[i] = softmax_slope(x[i], log_sum_exp, factor, rest);
  }
}

void gelu(float* y, const float* x, const float* bias, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    y[i] = gelu_of(x[i] + bias[i]);
  }
}

void gelu_backward(float* dx, const float* dy, const float* x, const float* bias,
                   float* bias_gradient, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    const float gradient = dy[i] * gelu_slope(x[i] + bias[i]);
    bias_gradient[i] += gradient;
    dx[i] = gradient;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

HWY_EXPORT(measure);
HWY_EXPORT(norm);
HWY_EXPORT(norm_backward);
HWY_EXPORT(sums);
HWY_EXPORT(softmax);
HWY_EXPORT(gelu);
HWY_EXPORT(gelu_backward);

RowNorm measure_row(const float* x, int64_t size, bool centred, double eps) {
  return HWY_DYNAMIC_DISPATCH(measure)(x, size, centred, eps);
}
void norm_row(float* y, const float* x, const float* weight, const float* bias, int64_t size,
              const RowNorm& row) {
  HWY_DYNAMIC_DISPATCH(norm)(y, x, weight, bias, size, row);
}
void norm_row_backward(float* dx, const float* dy, const float* x, const float* weight,
                       float* weight_gradient, float* bias_gradient, int64_t size,
                       const RowNorm& row, bool centred) {
  HWY_DYNAMIC_DISPATCH(norm_backward)
  (dx, dy, x, weight, weight_gradient, bias_gradient, size, row, centred);
}
RowSums sum_row(const float* x, int64_t size) {
  return HWY_DYNAMIC_DISPATCH(sums)(x, size);
}
void softmax_minus(float* dx, const float* x, int64_t size, float log_sum_exp, float factor,
                   float rest) {
  HWY_DYNAMIC_DISPATCH(softmax)(dx, x, size, log_sum_exp, factor, rest);
}
void bias_gelu_row(float* y, const float* x, const float* bias, int64_t size) {
  HWY_DYNAMIC_DISPATCH(gelu)(y, x, bias, size);
}
void bias_gelu_row_backward(float* dx, const float* dy, const float* x, const float* bias,
                            float* bias_gradient, int64_t size) {
  HWY_DYNAMIC_DISPATCH(gelu_backward)(dx, dy, x, bias, bias_gradient, size);
}

}  // namespace lockstep::amp
#endif
