#include "launches.h"
#include "test_names.h"

#include <lockstep/amp/cuda/row_launch.h>

namespace lockstep {
namespace {

using namespace amp;

struct RowCase {
  int64_t rows;
  int64_t size;
};
constexpr RowCase kRowCases[] = {{1, 1}, {3, 7}, {9, 300}, {2, 1031}, {300, 24}, {3, 2056}};
/// Count work: rows in packs, and rows of which none but the first begins at a multiple of 16
/// bytes.
constexpr RowCase kBulkRows{256, 768};
constexpr RowCase kOddRows{64, 767};
constexpr RowCase kBulkClasses{12, 16384};
/// For as many rows a processor as 132 of them have of 8192 rows.
constexpr int kBulkProcessors = 4;

bool counts_work(const RowCase& shape) {
  return shape.size == kBulkRows.size || shape.size == kOddRows.size ||
         shape.size == kBulkClasses.size;
}

void norms(Recording& record, const RowCase& shape, Element type, bool centred, bool scales) {
  const auto [rows, size] = shape;
  const int64_t all = rows * size;
  const bool counts = counts_work(shape);
  record.begin(centred ? "layer norm" : "rms norm", counts ? all : 0);
  NormWork work;
  work.x = {record.elements(type, all), rows, size};
  work.weight = scales ? record.floats(size, 0.5F, 1.5F) : nullptr;
  work.bias = scales && centred ? record.floats(size, -0.5F, 0.5F) : nullptr;
  work.norms = record.array<RowNorm>(rows);
  work.centred = centred;
  work.eps = 1e-5;
  const Rows slopes{record.elements(type, all), rows, size};
  const Rows result{record.elements(type, all), rows, size};
  float* const parts = record.floats(2 * row_parts(rows) * size, 0.0F, 1.0F);
  float* const sums = record.floats(2 * size, 0.0F, 1.0F);
  well(cuda::launch_norm(work, result, nullptr));
  well(cuda::launch_norm_backward(work, result, slopes, parts, sums, nullptr));
}

void bias_gelu(Recording& record, const RowCase& shape, Element type) {
  const auto [rows, size] = shape;
  const int64_t all = rows * size;
  record.begin("bias gelu", counts_work(shape) ? all : 0);
  const BiasGeluWork work{{record.elements(type, all, -9.0F, 9.0F), rows, size},
                          record.floats(size, -0.5F, 0.5F)};
  const Rows slopes{record.elements(type, all), rows, size};
  const Rows result{record.elements(type, all), rows, size};
  float* const parts = record.floats(row_parts(rows) * size, 0.0F, 1.0F);
  float* const sums = record.floats(size, 0.0F, 1.0F);
  well(cuda::launch_bias_gelu(work, result, nullptr));
  well(cuda::launch_bias_gelu_backward(work, result, slopes, parts, sums, nullptr));
}

void cross_entropy(Recording& record, const RowCase& shape, Element type, double smoothing) {
  const auto [rows, size] = shape;
  const int64_t all = rows * size;
  const bool counts = counts_work(shape);
  record.begin("cross entropy", counts ? all : 0);
  auto* const targets = record.array<int64_t>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    targets[row] = row % 4 == 1 && !counts ? -100 : static_cast<int64_t>(record.random()()) % size;
  }
  if (rows == 9) {
    targets[0] = size;  // no class
  }
  const CrossEntropyWork work{{record.elements(type, all, -20.0F, 20.0F), rows, size},
                              targets,
                              record.array<float>(rows),
                              smoothing,
                              /*ignore_index=*/-100};
  auto* const losses = record.array<double>(rows);
  float* const loss = record.floats(1, 0.0F, 1.0F);
  auto* const counted = record.array<double>(1);
  const float* const slope = record.one(2.0F);
  const Rows gradient{record.elements(type, all), rows, size};
  well(cuda::launch_cross_entropy(work, losses, loss, counted, nullptr));
  well(cuda::launch_cross_entropy_backward(work, gradient, slope, counted, nullptr));
}

}  // namespace

void record_layers(Recording& record) {
  emulated_cuda::device().processors = kBulkProcessors;
  norms(record, kBulkRows, Element::fp16, /*centred=*/true, /*scales=*/true);
  norms(record, kOddRows, Element::fp16, /*centred=*/true, /*scales=*/true);
  bias_gelu(record, kBulkRows, Element::fp16);
  bias_gelu(record, kOddRows, Element::fp16);
  cross_entropy(record, kBulkClasses, Element::fp16, /*smoothing=*/0.0);
  emulated_cuda::device().processors = 1;
  for (const Element type : kTypes) {
    for (const RowCase& shape : kRowCases) {
      norms(record, shape, type, /*centred=*/true, /*scales=*/true);
      bias_gelu(record, shape, type);
      cross_entropy(record, shape, type, /*smoothing=*/0.0);
      if (type == Element::bf16 && shape.rows < 16) {
        norms(record, shape, type, /*centred=*/false, /*scales=*/true);
        norms(record, shape, type, /*centred=*/true, /*scales=*/false);
        cross_entropy(record, shape, type, /*smoothing=*/0.1);
      }
    }
  }
}

}  // namespace lockstep
