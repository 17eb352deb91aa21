#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace lockstep::exported {

/// A function on Python's numbers, which torch.export uses for sizes computed from other sizes and
/// for guards of dynamic shapes. The operands are on the stack; the result replaces them. Semantics
/// of Python: // and % round down, / gives a float.
using Arithmetic = void (*)(std::vector<c10::IValue>& stack);

/// The function of a target such as "_operator.floordiv", or null: all of the exporter's list
/// (_SYM_OPS), and those of its guards. Sets `operands` to its number of operands.
Arithmetic arithmetic_of(const std::string& target, size_t& operands);

}  // namespace lockstep::exported
