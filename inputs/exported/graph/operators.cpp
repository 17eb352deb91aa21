#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/operators.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace lockstep::exported {

namespace {

bool starts_with(const std::string& text, const std::string& beginning) {
  return text.rfind(beginning, 0) == 0;
}

/// Whether fp16 and bf16 can hold the fill number in `values`. They cannot hold finfo(float32).min,
/// for example, which attention masks use.
bool fits_16_bits(const std::unordered_map<std::string, const nlohmann::json*>& values) {
  const auto fill = values.find("fill_value");
  if (fill == values.end()) {
    return true;
  }
  const auto [kind, value] = alternative(*fill->second);
  const double number = kind == "as_float" ? floating(*value)
                        : kind == "as_int" ? static_cast<double>(integer(*value))
                                           : 0.0;
  return !std::isfinite(number) || std::abs(number) <= 65504.0;
}

}  // namespace

bool makes_a_constant(const c10::FunctionSchema& schema,
                      const std::unordered_map<std::string, const nlohmann::json*>& values) {
  static const std::unordered_set<std::string> names = {
      "aten::zeros",      "aten::ones",      "aten::full",      "aten::empty",
      "aten::new_zeros",  "aten::new_ones",  "aten::new_full",  "aten::new_empty",
      "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::empty_like"};
  return names.count(schema.name()) > 0 && fits_16_bits(values);
}

c10::OperatorHandle find_operator(const std::string& target,
                                  const std::vector<std::string>& namespaces) {
  const std::string prefix = "torch.ops.";
  const auto dot = target.find('.', prefix.size());
  const auto last = target.rfind('.');
  if (starts_with(target, "torch.ops.higher_order.")) {
    malformed(
        "of the higher-order operators, only torch.no_grad(), torch.enable_grad() and "
        "torch.autocast() are run. Move this one out of forward() and export again");
  }
  if (!starts_with(target, prefix) || dot == std::string::npos || last <= dot) {
    malformed("this is no operator of LibTorch. Export a forward() of torch's operators only");
  }
  const std::string space = target.substr(prefix.size(), dot - prefix.size());
  const std::string name = space + "::" + target.substr(dot + 1, last - dot - 1);
  const bool custom = space != "aten";
  if (custom && std::find(namespaces.begin(), namespaces.end(), space) == namespaces.end()) {
    malformed(
        "custom operators are not run. Write this part of forward() with torch's own "
        "operators, or register the operator in this process and name its namespace: "
        "ExportedModuleOptions().operators({\"",
        space, "\"}), in C and Fortran \"operators=", space, "\"");
  }
  if (name == "aten::from_file") {
    malformed("operators that open files are not run");
  }
  const std::string overload = target.substr(last + 1);
  const auto op = c10::Dispatcher::singleton().findSchema(
      {name, overload == "default" ? std::string() : overload});
  if (!op.has_value() && custom) {
    malformed("this process has not registered the operator. Link or load the library that does");
  }
  if (!op.has_value()) {
    malformed("this LibTorch (" TORCH_VERSION
              ") does not have the operator. Export with the "
              "version of torch that this program links");
  }
  return *op;
}

}  // namespace lockstep::exported
