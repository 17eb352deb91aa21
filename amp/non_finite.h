#pragma once

#include <c10/core/ScalarType.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/amp/impl/value_summary.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::amp {

/// One operator that ran, and a summary of its result.
struct TracedOperator {
  std::string name;       // "aten::addmm"
  std::string module;     // the module whose parameter the operator reads, else the last that ran
  std::string parameter;  // the parameter that the operator reads; empty for none
  bool backward = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  ValueSummary values;

  /// "forward aten::addmm of block.wo (reads block.wo.weight), Half[4, 8]: 3 inf of 32, absmax ..."
  std::string describe() const;
};

/// The origin of the first non-finite value in a forward and backward.
struct NonFinite {
  /// What introduced the value.
  enum class Origin {
    op,         // an operator whose inputs were finite
    parameter,  // a parameter that was non-finite before the forward
    input,      // a tensor from outside: the batch, or a buffer
    number,     // a scalar argument from the program, such as 1.0 / 0, in a calculation
  };
  Origin origin = Origin::op;
  TracedOperator first;                // the operator that produced the value, or first read it
  double number = 0.0;                 // for Origin::number: the inf or NaN
  ValueSummary largest_input;          // the range of the floating inputs of `first`
  std::vector<TracedOperator> before;  // the operators before `first`, oldest first

  /// Several lines: the operator, the range of its input and the headroom of the input in fp16, and
  /// the operators before it.
  std::string describe() const;
};

}  // namespace lockstep::amp
