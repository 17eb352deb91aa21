#pragma once

#include <lockstep/amp/update/double_forms.h>

#include <cstdint>

namespace lockstep::amp {

/// A run of fp64 elements to update in place; arrays do not overlap.
struct DoubleBlock {
  double* weight;
  const double* gradient;
  double* moments[2];
  int64_t size;
};

/// Applies the pass to every element, with the widest vectors of the machine.
#define LOCKSTEP_DECLARE(Form) void update_block(const Form& form, const DoubleBlock& block);
LOCKSTEP_FOR_EACH_DOUBLE_FORM(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

/// average = lerp(average, from, rest)
void move_towards(double* average, const double* from, int64_t size, double rest);

}  // namespace lockstep::amp
