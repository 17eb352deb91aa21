#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lockstep::benchmarks {

/// Plain sums for this machine's own processor, fp32 inside: the bound's kernel, and what a user
/// would write as an MPI operation for 16-bit types. Types: Float, Half, BFloat16; n is a multiple
/// of 64, but for add(): MPI cuts a tensor as it likes.

/// a = b = a + b, element by element.
void sum_to_both(c10::ScalarType dtype, void* a, void* b, int64_t n);
/// into += from.
void add(c10::ScalarType dtype, const void* from, void* into, int64_t n);
/// Adds `from` to three arrays at once: the memory traffic of an AdamW update, which reads a
/// gradient and moves a weight and two moments, with next to no arithmetic.
void add_to_three(c10::ScalarType dtype, const void* from, float* a, float* b, float* c, int64_t n);

}  // namespace lockstep::benchmarks
