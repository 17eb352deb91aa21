#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::exported {

/// The values of one run of a program, by slot.
using Values = std::vector<c10::IValue>;

/// Device and dtype of the module in one run.
struct Place {
  c10::Device device = c10::kCPU;
  at::ScalarType dtype = at::kFloat;
};

/// One value of an argument: a literal, or the value of a slot.
struct Operand {
  int slot = -1;      // -1: use the literal
  bool last = false;  // the last read of the slot: moves the value out
  c10::IValue literal;

  c10::IValue take(Values& values) const;
};

/// Makes one argument of an operator at each call. Compiled once, when the archive is read.
struct Argument {
  enum class Kind : uint8_t {
    value,             // operands[0]
    number_as_tensor,  // operands[0], a number, as a 0-dimensional tensor that promotes as one
    int_as_float,      // operands[0], an integer for a float
    tensors,
    optional_tensors,
    integers,
    floats,
    booleans,
    place_device,  // the module's device
    place_dtype,   // the module's dtype
  };
  Kind kind = Kind::value;
  std::vector<Operand> operands;

  void push(Values& stack, Values& values, const Place& place) const;
};

/// Names of slots, and the module's device at export.
struct Names {
  std::function<int(const std::string&)> slot;  // throws Malformed for an unknown name
  c10::Device device = c10::kCPU;               // of the parameters at export
};

/// Compiles an argument of an operator's schema from its JSON. Throws Malformed if the value does
/// not fit the argument's type.
Argument argument_of(const nlohmann::json& value, const c10::Argument& schema, const Names& names);
/// The same for a number of shape arithmetic, which has no schema.
Argument number_of(const nlohmann::json& value, const Names& names);
/// A 0-dimensional tensor with the type promotion of the number.
at::Tensor wrapped_number(const c10::IValue& number);

}  // namespace lockstep::exported
