#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/update/error_feedback.h>

#include <algorithm>
#include <cstring>

namespace lockstep::amp {
namespace {

void keep_all(void* wire, int64_t wire_bytes, int64_t size, const float* kept, float kept_factor,
              float* next) {
  std::memset(wire, 0, static_cast<size_t>(size * wire_bytes));
  for (int64_t i = 0; i < size; ++i) {
    next[i] = kept[i] * kept_factor;
  }
}

}  // namespace

void cast_with_feedback(void* wire, c10::ScalarType wire_dtype, const void* gradient,
                        c10::ScalarType dtype, int64_t size, double factor,
                        const Residuals& residuals, const FeedbackState& state) {
  constexpr int64_t kBlock = 1024;
  alignas(64) float sum[kBlock];
  alignas(64) float sent[kBlock];
  const float* const kept = residuals.kept(state);
  float* const next = residuals.next(state);
  const float kept_factor = state.factor;
  const auto wire_bytes = static_cast<int64_t>(c10::elementSize(wire_dtype));
  if (gradient == nullptr) {
    keep_all(wire, wire_bytes, size, kept, kept_factor, next);
    return;
  }
  const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    char* const to = static_cast<char*>(wire) + begin * wire_bytes;
    kernels::cast_scaled(sum, c10::ScalarType::Float,
                         static_cast<const char*>(gradient) + begin * bytes, dtype, count, factor);
    for (int64_t i = 0; i < count; ++i) {
      sum[i] += kept[begin + i] * kept_factor;
    }
    kernels::cast_scaled(to, wire_dtype, sum, c10::ScalarType::Float, count, 1.0);
    kernels::cast_scaled(sent, c10::ScalarType::Float, to, wire_dtype, count, 1.0);
    for (int64_t i = 0; i < count; ++i) {
      next[begin + i] = sum[i] - sent[i];
    }
  }
}

}  // namespace lockstep::amp
