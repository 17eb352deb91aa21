#pragma once

#include <lockstep/amp/update/update_block.h>

#include <cstdint>

namespace lockstep::amp {

/// A run of fp64 elements to update in place; arrays do not overlap.
struct DoubleBlock {
  double* weight;
  const double* gradient;
  double* moments[2];
  int64_t size;
};

/// move_moments(): the first pass of a form with kTakesRoots, on every element; nothing for other
/// forms. update_block(): its call operator. Both with the widest vectors of the machine.
#define LOCKSTEP_DECLARE(Update)                                           \
  void move_moments(const Update::Double& form, const DoubleBlock& block); \
  void update_block(const Update::Double& form, const DoubleBlock& block);
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

/// average = lerp(average, from, rest)
void move_towards(double* average, const double* from, int64_t size, double rest);

}  // namespace lockstep::amp
