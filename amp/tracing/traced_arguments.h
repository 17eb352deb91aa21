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

/// Makes memory without values in it.
bool leaves_memory_unset(std::string_view name);
/// The result is the argument seen or stored in another way, so it stands for the same parameter.
bool passes_on(std::string_view name);
bool changes_in_place(std::string_view name);
/// Adds, multiplies or the like, so that a number among its arguments is no value to fill with.
bool calculates(std::string_view name);

/// A floating tensor in memory.
bool has_values(const at::Tensor& tensor);

/// The arguments of one observed operator, kept until it is done; or its results.
struct TracedArguments final : at::ObserverContext {
  std::string name;
  std::vector<at::Tensor> tensors;
  bool infinite_scalar = false;
  std::optional<double> faulty_number;  // NaN or +inf among the numbers; -inf is how masks are made
  bool autograd_node = false;
  int64_t sequence = -1;
  ValueSummary summary;  // of all tensors; at the start for those changed in place, else later
  bool summarised = false;

  void read(const c10::IValue& value);
  void summarise_tensors();
};

}  // namespace lockstep::amp
