#pragma once

#include <cstdint>

namespace lockstep::amp {

/// Functions on one row of `size` fp32 values. Sums run over 16 fixed lanes, so their bits do not
/// depend on the instruction set. An output row may be an input row.

/// The statistics of a row: its normalised values are (x - mean) * inverse.
struct RowNorm {
  float mean = 0.0F;
  float inverse = 1.0F;
};
/// `centred`: for LayerNorm; else for RMSNorm, with mean 0.
RowNorm measure_row(const float* x, int64_t size, bool centred, double eps);
/// y = normed * weight + bias; weight and bias may be null.
void norm_row(float* y, const float* x, const float* weight, const float* bias, int64_t size,
              const RowNorm& norm);
/// Computes dx from dy and adds the row's terms to weight_gradient and bias_gradient unless null.
void norm_row_backward(float* dx, const float* dy, const float* x, const float* weight,
                       float* weight_gradient, float* bias_gradient, int64_t size,
                       const RowNorm& norm, bool centred);

/// log(sum(exp(x))), and the sum of x.
struct RowSums {
  float log_sum_exp = 0.0F;
  float sum = 0.0F;
};
RowSums sum_row(const float* x, int64_t size);
/// dx = factor * (softmax(x) - rest); the caller subtracts the term of the target.
void softmax_minus(float* dx, const float* x, int64_t size, float log_sum_exp, float factor,
                   float rest);

/// y = gelu(x + bias).
void bias_gelu_row(float* y, const float* x, const float* bias, int64_t size);
/// dx = dy * gelu'(x + bias), also added to bias_gradient.
void bias_gelu_row_backward(float* dx, const float* dy, const float* x, const float* bias,
                            float* bias_gradient, int64_t size);

}  // namespace lockstep::amp
