#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <lockstep/amp/impl/value_summary.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::amp {

/// True for operators that return uninitialised memory.
bool leaves_memory_unset(std::string_view name);
/// True for views and copies: their result stands for the same parameter as the argument.
bool passes_on(std::string_view name);
bool changes_in_place(std::string_view name);
/// True for arithmetic operators: a number among their arguments is not a fill value.
bool calculates(std::string_view name);

/// True for a floating tensor with memory.
bool has_values(const at::Tensor& tensor);

/// The arguments of an observed operator, kept until it ends; or its results.
struct TracedArguments final : at::ObserverContext {
  std::string name;
  std::vector<at::Tensor> tensors;
  bool infinite_scalar = false;
  std::optional<double> faulty_number;  // a NaN or +inf argument; -inf is allowed, for masks
  bool autograd_node = false;
  int64_t sequence = -1;
  ValueSummary summary;  // of all tensors; at the start for in-place operators, else later
  bool summarised = false;

  void read(const c10::IValue& value);
  void summarise_tensors();
};

}  // namespace lockstep::amp
