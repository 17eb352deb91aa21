#pragma once

#include <c10/core/ScalarType.h>
#include <lockstep/amp/value_summary.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::amp {

/// One operator that ran, and what it made.
struct TracedOperator {
  std::string name;    // "aten::addmm"
  std::string module;  // the module whose parameter it reads, else the last one that ran before it
  std::string parameter;  // the parameter it reads; empty for none
  bool backward = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  ValueSummary values;

  /// "forward aten::addmm of block.wo (reads block.wo.weight), Half[4, 8]: 3 inf of 32, absmax ..."
  std::string describe() const;
};

/// Where the first non-finite value of a forward and backward came from.
struct NonFinite {
  /// What brought it into being.
  enum class Origin {
    op,         // an operator whose inputs were finite
    parameter,  // a parameter that held it before the forward
    input,      // a tensor that came from outside: the batch, or a buffer
    number,     // a number of the program, such as 1.0 / 0, that an operator calculated with
  };
  Origin origin = Origin::op;
  TracedOperator first;                // the operator that made it, or read it first
  double number = 0.0;                 // inf or NaN, where a number of the program is the origin
  ValueSummary largest_input;          // of the operator's floating input with the highest absmax
  std::vector<TracedOperator> before;  // the operators before it, oldest first

  /// Several lines: the operator, the input's range and its headroom in fp16, the trail before it.
  std::string describe() const;
};

}  // namespace lockstep::amp
