#include <lockstep/amp/error_feedback.h>
#include <lockstep/collectives/cast_kernels.h>

#include <algorithm>

namespace lockstep::amp {

void cast_with_feedback(void* wire, c10::ScalarType wire_dtype, const void* gradient,
                        c10::ScalarType dtype, int64_t size, double factor, const float* residual,
                        float residual_factor, float* next) {
  constexpr int64_t kBlock = 1024;
  alignas(64) float sum[kBlock];
  alignas(64) float sent[kBlock];
  const auto wire_bytes = static_cast<int64_t>(c10::elementSize(wire_dtype));
  const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    char* const to = static_cast<char*>(wire) + begin * wire_bytes;
    kernels::cast_scaled(sum, c10::ScalarType::Float,
                         static_cast<const char*>(gradient) + begin * bytes, dtype, count, factor);
    for (int64_t i = 0; i < count; ++i) {
      sum[i] += residual[begin + i] * residual_factor;
    }
    kernels::cast_scaled(to, wire_dtype, sum, c10::ScalarType::Float, count, 1.0);
    kernels::cast_scaled(sent, c10::ScalarType::Float, to, wire_dtype, count, 1.0);
    for (int64_t i = 0; i < count; ++i) {
      next[begin + i] = sum[i] - sent[i];
    }
  }
}

}  // namespace lockstep::amp
