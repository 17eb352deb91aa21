#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

/// A sum of doubles without rounding (a Kulisch accumulator): its bits depend neither on the order
/// of the values nor on the number of ranks. It is kExactSumWords integers, all 0 at first. Adding
/// the integers of two ranks, one by one, gives the sum of all their values.
constexpr size_t kExactSumWords = 71;

/// Adds the values, including NaN and infinities, to a sum.
void add_exactly(int64_t* words, const double* values, int64_t count);

/// The sum, rounded to a double at the end. NaN if a value was NaN, or if both infinities occurred.
double rounded_sum(const int64_t* words);

}  // namespace lockstep::detail
