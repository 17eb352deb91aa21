#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace lockstep::exported {

/// A function of Python's numbers: what torch.export writes for sizes that are computed from other
/// sizes, and for the guards of dynamic shapes. The operands lie on the stack; the result replaces
/// them. Integers, floats and booleans are those of Python: // and % round down, / gives a float.
using Arithmetic = void (*)(std::vector<c10::IValue>& stack);

/// The function of a target such as "_operator.floordiv"; null if there is none. `operands`: the
/// number that it takes.
Arithmetic arithmetic_of(const std::string& target, size_t& operands);

}  // namespace lockstep::exported
