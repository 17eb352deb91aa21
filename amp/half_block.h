#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lockstep::amp {

/// array[begin, begin + size) of fp32, fp16 or bf16 into `out`, exactly.
void load_block(const void* array, c10::ScalarType dtype, int64_t begin, int64_t size, float* out);

/// The other way, rounded to nearest even.
void store_block(const float* in, int64_t size, void* array, c10::ScalarType dtype, int64_t begin);

}  // namespace lockstep::amp
