#pragma once

#include <lockstep/amp/cuda/element_pack.h>
#include <lockstep/amp/layers/row_kernels.h>
#include <lockstep/amp/layers/smooth_math.h>

#include <cmath>

namespace lockstep::amp {

#undef LOCKSTEP_ROW
#define LOCKSTEP_ROW LOCKSTEP_HOST_DEVICE
#include <lockstep/amp/layers/row_arithmetic-inl.h>

/// What fused layers do to one row, by a team of threads, and to one column of a part of the rows,
/// by one thread. A kernel calls these for all rows, or columns and parts, in no order.

/// Threads of a team on a device.
constexpr int kRowLanes = 128;

/// Rows with their contiguous elements, as fp32.
struct Rows {
  Elements data;
  int64_t rows = 0;
  int64_t size = 0;

  LOCKSTEP_HOST_DEVICE float at(int64_t row, int64_t i) const {
    return element_of(data, row * size + i);
  }
  LOCKSTEP_HOST_DEVICE void set(int64_t row, int64_t i, float value) const {
    set_element(data, row * size + i, value);
  }
};

/// Parts of the rows that gradients of parameters are summed over first.
constexpr int kRowParts = 64;
LOCKSTEP_HOST_DEVICE int64_t first_row_of(int part, int64_t rows) {
  return rows * part / kRowParts;
}

/// LayerNorm, or RMSNorm if not `centred`. weight and bias may be null.
struct NormWork {
  Rows x;
  const float* weight = nullptr;
  const float* bias = nullptr;
  RowNorm* norms = nullptr;  // one for each row
  bool centred = true;
  double eps = 0.0;

  template <typename Team>
  LOCKSTEP_HOST_DEVICE void forward(const Team& team, const Rows& y, int64_t row) const {
    const auto value = [&](int64_t i) { return x.at(row, i); };
    const RowNorm norm = measure_row_with(team, x.size, value, centred, eps);
    if (team.first()) {
      norms[row] = norm;
    }
    team.each(x.size, [&](int64_t i) {
      const float scaled = normed(value(i), norm) * (weight == nullptr ? 1.0F : weight[i]);
      y.set(row, i, bias == nullptr ? scaled : scaled + bias[i]);
    });
  }

  template <typename Team>
  LOCKSTEP_HOST_DEVICE void backward(const Team& team, const Rows& dx, const Rows& dy,
                                     int64_t row) const {
    norm_backward_with(
        team, x.size, [&](int64_t i) { return x.at(row, i); },
        [&](int64_t i) { return dy.at(row, i) * (weight == nullptr ? 1.0F : weight[i]); },
        [&](int64_t i, float value) { dx.set(row, i, value); }, norms[row], centred);
  }

  /// Sums of gradients over a part of the rows, for column i.
  LOCKSTEP_HOST_DEVICE void sum_part(const Rows& dy, float* weight_part, float* bias_part, int part,
                                     int64_t i) const {
    float weights = 0.0F;
    float biases = 0.0F;
    for (int64_t row = first_row_of(part, x.rows); row < first_row_of(part + 1, x.rows); ++row) {
      weights += dy.at(row, i) * normed(x.at(row, i), norms[row]);
      biases += dy.at(row, i);
    }
    weight_part[part * x.size + i] = weights;
    bias_part[part * x.size + i] = biases;
  }
};

/// gelu(x + bias).
struct BiasGeluWork {
  Rows x;
  const float* bias = nullptr;

  template <typename Team>
  LOCKSTEP_HOST_DEVICE void forward(const Team& team, const Rows& y, int64_t row) const {
    team.each(x.size, [&](int64_t i) { y.set(row, i, gelu_of(x.at(row, i) + bias[i])); });
  }

  LOCKSTEP_HOST_DEVICE void backward_part(const Rows& dx, const Rows& dy, float* bias_part,
                                          int part, int64_t i) const {
    float sum = 0.0F;
    for (int64_t row = first_row_of(part, x.rows); row < first_row_of(part + 1, x.rows); ++row) {
      const float gradient = dy.at(row, i) * gelu_slope(x.at(row, i) + bias[i]);
      dx.set(row, i, gradient);
      sum += gradient;
    }
    bias_part[part * x.size + i] = sum;
  }
};

/// One column of a parameter's gradient, from its parts.
LOCKSTEP_HOST_DEVICE float sum_of_parts(const float* parts, int64_t size, int64_t i) {
  float sum = 0.0F;
  for (int part = 0; part < kRowParts; ++part) {
    sum += parts[part * size + i];
  }
  return sum;
}

/// Cross-entropy with label smoothing; a target that is no class makes the loss NaN.
struct CrossEntropyWork {
  Rows logits;
  const int64_t* targets = nullptr;
  float* log_sums = nullptr;  // one for each row
  double smoothing = 0.0;
  int64_t ignore_index = -100;

  LOCKSTEP_HOST_DEVICE bool counts(int64_t row) const { return targets[row] != ignore_index; }
  LOCKSTEP_HOST_DEVICE bool is_class(int64_t target) const {
    return target >= 0 && target < logits.size;
  }

  /// The row's loss, to all of the team; 0 for rows that do not count.
  template <typename Team>
  LOCKSTEP_HOST_DEVICE double forward(const Team& team, int64_t row) const {
    if (!counts(row)) {
      return 0.0;
    }
    const RowSums sums =
        sum_row_with(team, logits.size, [&](int64_t i) { return logits.at(row, i); });
    if (team.first()) {
      log_sums[row] = sums.log_sum_exp;
    }
    const int64_t target = targets[row];
    if (!is_class(target)) {
      return static_cast<double>(NAN);
    }
    return sums.log_sum_exp - (1.0 - smoothing) * logits.at(row, target) -
           smoothing * (sums.sum / static_cast<float>(logits.size));
  }

  /// `factor`: the gradient of the mean loss over the number of rows that count.
  template <typename Team>
  LOCKSTEP_HOST_DEVICE void backward(const Team& team, const Rows& gradient, float factor,
                                     int64_t row) const {
    const bool counted = counts(row);
    const int64_t target = targets[row];
    const float log_sum = counted ? log_sums[row] : 0.0F;
    const auto rest = static_cast<float>(smoothing / static_cast<double>(logits.size));
    const auto hit = static_cast<float>(factor * (1.0 - smoothing));
    team.each(logits.size, [&](int64_t i) {
      const float slope = counted ? softmax_slope(logits.at(row, i), log_sum, factor, rest) : 0.0F;
      gradient.set(row, i, counted && i == target ? slope - hit : slope);
    });
  }
};

}  // namespace lockstep::amp
