#pragma once

#include <cstdint>

namespace lockstep::amp {

/// One row of `size` fp32 values each; sums run over 16 fixed lanes, so their bits do not depend on
/// the instruction set. Output rows may be input rows.

/// What a normalisation keeps of a row: (x - mean) * inverse is normed.
struct RowNorm {
  float mean = 0.0F;
  float inverse = 1.0F;
};
/// `centred`: LayerNorm; else RMSNorm, whose mean is 0.
RowNorm measure_row(const float* x, int64_t size, bool centred, double eps);
/// y = normed * weight + bias; weight and bias may be null.
void norm_row(float* y, const float* x, const float* weight, const float* bias, int64_t size,
              const RowNorm& norm);
/// dx from dy, and the row's part added to weight_gradient and bias_gradient where not null.
void norm_row_backward(float* dx, const float* dy, const float* x, const float* weight,
                       float* weight_gradient, float* bias_gradient, int64_t size,
                       const RowNorm& norm, bool centred);

/// log(sum(exp(x))), and the sum of x.
struct RowSums {
  float log_sum_exp = 0.0F;
  float sum = 0.0F;
};
RowSums sum_row(const float* x, int64_t size);
/// dx = factor * (softmax(x) - rest); the caller takes off what the target adds.
void softmax_minus(float* dx, const float* x, int64_t size, float log_sum_exp, float factor,
                   float rest);

/// y = gelu(x + bias).
void bias_gelu_row(float* y, const float* x, const float* bias, int64_t size);
/// dx = dy * gelu'(x + bias), added to bias_gradient too.
void bias_gelu_row_backward(float* dx, const float* dy, const float* x, const float* bias,
                            float* bias_gradient, int64_t size);

}  // namespace lockstep::amp
