#include <lockstep/amp/tracing/traced_arguments.h>
#include <lockstep/collectives/impl/plain_tensor.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace lockstep::amp {
namespace {

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

}  // namespace

bool leaves_memory_unset(std::string_view name) {
  return starts_with(name, "aten::empty") || starts_with(name, "aten::new_empty") ||
         starts_with(name, "aten::_empty") || starts_with(name, "aten::resize");
}

bool passes_on(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "aten::t",          "aten::transpose", "aten::view",         "aten::reshape",
      "aten::to",         "aten::_to_copy",  "aten::detach",       "aten::expand",
      "aten::permute",    "aten::alias",     "aten::contiguous",   "aten::clone",
      "aten::as_strided", "aten::numpy_T",   "aten::resolve_conj", "aten::resolve_neg",
      "aten::unsqueeze",  "aten::slice",     "aten::select",       "aten::unsafe_view"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool changes_in_place(std::string_view name) {
  return !name.empty() && name.back() == '_';
}

bool calculates(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "aten::add",     "aten::sub",     "aten::rsub",     "aten::mul",         "aten::div",
      "aten::pow",     "aten::lerp",    "aten::multiply", "aten::divide",      "aten::true_divide",
      "aten::addcmul", "aten::addcdiv", "aten::subtract", "aten::floor_divide"};
  if (changes_in_place(name)) {
    name.remove_suffix(1);
  }
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool has_values(const at::Tensor& tensor) {
  return tensor.defined() && at::isFloatingType(tensor.scalar_type()) &&
         detail::why_not_plain(tensor).empty() && tensor.has_storage();
}

void TracedArguments::read(const c10::IValue& value) {
  const auto read_number = [this](double number) {
    if (std::isnan(number) || (std::isinf(number) && number > 0)) {
      faulty_number = number;
    }
  };
  if (value.isTensor()) {
    const at::Tensor& tensor = tensors.emplace_back(value.toTensor());
    if (has_values(tensor) && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      read_number(tensor.item<double>());
    }
  } else if (value.isTensorList()) {
    const auto list = value.toTensorVector();
    tensors.insert(tensors.end(), list.begin(), list.end());
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor.value_or(at::Tensor()));
    }
  } else if (value.isDouble()) {
    infinite_scalar = infinite_scalar || !std::isfinite(value.toDouble());
    read_number(value.toDouble());
  }
}

void TracedArguments::summarise_tensors() {
  if (summarised) {
    return;
  }
  summarised = true;
  for (const at::Tensor& tensor : tensors) {
    if (has_values(tensor)) {
      const ValueSummary one = summarise(tensor);
      summary.numel += one.numel;
      summary.infs += one.infs;
      summary.nans += one.nans;
      summary.absmax = std::max(summary.absmax, one.absmax);
    }
  }
}

}  // namespace lockstep::amp
