#pragma once

#include <lockstep/amp/cuda/element_pack.h>
#include <lockstep/amp/layers/row_kernels.h>
#include <lockstep/amp/layers/smooth_math.h>

#include <cmath>

namespace lockstep::amp {

#undef LOCKSTEP_ROW
#define LOCKSTEP_ROW LOCKSTEP_HOST_DEVICE
#include <lockstep/amp/layers/row_arithmetic-inl.h>

/// The work of fused layers: on one row by a team of threads, or on one column of a part of the
/// rows by one thread. A kernel calls these for all rows, or columns and parts, in any order. They
/// access single elements, so rows of any size and address; wide_layers.cu accesses packs.

/// Threads of a team.
constexpr int kRowLanes = 128;

/// Rows of contiguous elements, accessed as fp32.
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
  /// Whether all rows consist of whole packs at multiples of 16 bytes.
  bool in_packs() const {
    return size % kPack == 0 && reinterpret_cast<uintptr_t>(data.data) % 16 == 0;
  }
};

/// Gradients of parameters are summed over parts of the rows first; the number of parts does not
/// depend on the device. A part has at least 32 rows, so there are few sums of parts.
constexpr int kMostRowParts = 256;
inline int row_parts(int64_t rows) {
  const int64_t parts = (rows + 31) / 32;
  return static_cast<int>(parts < 1 ? 1 : parts < kMostRowParts ? parts : kMostRowParts);
}
LOCKSTEP_HOST_DEVICE int64_t first_row_of(int64_t part, int64_t parts, int64_t rows) {
  return rows * part / parts;
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

  /// Sums the gradients of column i over a part of the rows.
  LOCKSTEP_HOST_DEVICE void sum_part(const Rows& dy, float* weight_part, float* bias_part, int part,
                                     int parts, int64_t i) const {
    float weights = 0.0F;
    float biases = 0.0F;
    const int64_t last = first_row_of(part + 1, parts, x.rows);
    for (int64_t row = first_row_of(part, parts, x.rows); row < last; ++row) {
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
                                          int part, int parts, int64_t i) const {
    float sum = 0.0F;
    const int64_t last = first_row_of(part + 1, parts, x.rows);
    for (int64_t row = first_row_of(part, parts, x.rows); row < last; ++row) {
      const float gradient = dy.at(row, i) * gelu_slope(x.at(row, i) + bias[i]);
      dx.set(row, i, gradient);
      sum += gradient;
    }
    bias_part[part * x.size + i] = sum;
  }
};

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
};

/// Divides a row at multiples of 16 bytes: `head` single elements, whole packs, single elements.
struct RowEdges {
  int64_t head = 0;
  int64_t packs = 0;
  int64_t alone = 0;  // single elements of head and tail

  /// Packs only if they are the same for both rows; else all elements are single.
  LOCKSTEP_HOST_DEVICE static RowEdges of(const Rows& a, const Rows& b, int64_t row) {
    const uintptr_t bytes = a.data.type == Element::fp32 ? 4 : 2;
    const auto first = reinterpret_cast<uintptr_t>(a.data.data);
    const auto other = reinterpret_cast<uintptr_t>(b.data.data);
    const auto beyond = (first + static_cast<uintptr_t>(row * a.size) * bytes) % 16;
    RowEdges edges{a.size, 0, a.size};
    const auto head = static_cast<int64_t>((16 - beyond) % 16 / bytes);
    if (a.data.type == b.data.type && first % 16 == other % 16 && head + kPack <= a.size) {
      edges.head = head;
      edges.packs = (a.size - head) / kPack;
      edges.alone = a.size - edges.packs * kPack;
    }
    return edges;
  }
  /// The index in the row of single element number `i`.
  LOCKSTEP_HOST_DEVICE int64_t alone_at(int64_t i) const {
    return i < head ? i : i + packs * kPack;
  }
};

/// One thread's sum of e^(x - reference) in one pass. The reference is at most 1 below the largest
/// x so far; a larger x rescales the sum to a new reference.
struct ExponentialSum {
  float reference = -INFINITY;
  float sum = 0.0F;
  float plain = 0.0F;  // sum of x

  template <int kCount>
  LOCKSTEP_HOST_DEVICE void add(const float (&values)[kCount]) {
    float largest = -INFINITY;
    for (const float value : values) {
      largest = larger_of(largest, value);
    }
    if (largest > reference + 1.0F) {
      sum *= exp_of(reference - largest);
      reference = largest;
    }
    const float from = reference == -INFINITY ? 0.0F : reference;  // -inf - -inf is not a number
    for (const float value : values) {
      sum += exp_of(value - from);
      plain += value;
    }
  }
};

}  // namespace lockstep::amp
