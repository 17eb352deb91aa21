#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

/// A sum of doubles without rounding (a Kulisch accumulator): the same bits in whatever order the
/// values come, on however many ranks. It is kept as integers, zeros at first. The sums of two
/// ranks' integers, one by one, are those of all their values.
constexpr size_t kExactSumWords = 71;

/// Adds the values to a sum; NaN and infinite ones, too.
void add_exactly(int64_t* words, const double* values, int64_t count);

/// The sum, rounded to a double at the end. NaN if a value was NaN, or if both infinities occurred.
double rounded_sum(const int64_t* words);

}  // namespace lockstep::detail
