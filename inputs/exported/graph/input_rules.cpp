#include <lockstep/collectives/check.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/input_rules.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

/// "s13" of "Symbol('s13', positive=True, integer=True)"; empty for any other expression.
std::string symbol_name(const std::string& expression) {
  const std::string begin = "Symbol('";
  const auto end = expression.find('\'', begin.size());
  if (expression.rfind(begin, 0) != 0 || end == std::string::npos ||
      expression.find(')') != expression.size() - 1) {
    return "";
  }
  return expression.substr(begin.size(), end - begin.size());
}

enum class Numbers : uint8_t { boolean, integral, floating };

Numbers numbers_of(at::ScalarType dtype) {
  return dtype == at::kBool                                  ? Numbers::boolean
         : c10::isIntegralType(dtype, /*includeBool=*/false) ? Numbers::integral
                                                             : Numbers::floating;
}

}  // namespace

InputRules::InputRules(const Json& program) {
  for (const auto& [name, range] : program.at("range_constraints").items()) {
    const Json& smallest = range.at("min_val");
    const Json& largest = range.at("max_val");
    // As in Python: a program that was exported for 2 and more also takes 0 and 1.
    const int64_t from = smallest.is_null() ? 0 : integer(smallest);
    ranges_[name] = {from > 2 ? from : 0, largest.is_null() ? kLargest : integer(largest)};
  }
}

InputRules::Dimension InputRules::dimension_of(const Json& size) {
  const auto [kind, value] = alternative(size);
  if (kind == "as_int") {
    return {integer(*value), -1};
  }
  const std::string name = symbol_name(value->at("expr_str").get<std::string>());
  if (name.empty()) {
    return {};  // an expression: the operators check it
  }
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].name == name) {
      return {-1, static_cast<int>(i)};
    }
  }
  const auto range = ranges_.find(name);
  const auto [from, to] = range == ranges_.end() ? std::pair{int64_t{0}, kLargest} : range->second;
  symbols_.push_back({name, from, to});
  return {-1, static_cast<int>(symbols_.size()) - 1};
}

void InputRules::add(std::string name, int slot, const Json* meta) {
  Input input{std::move(name), slot, meta != nullptr, at::kLong, {}};
  if (meta != nullptr) {
    input.dtype = scalar_type(meta->at("dtype"));
    for (const Json& size : meta->at("sizes")) {
      input.dimensions.push_back(dimension_of(size));
    }
  }
  inputs_.push_back(std::move(input));
}

std::vector<std::string> InputRules::names() const {
  std::vector<std::string> names;
  for (const Input& input : inputs_) {
    names.push_back(input.name);
  }
  return names;
}

void InputRules::check(const Input& input, const at::Tensor& tensor,
                       std::vector<Bound>& bound) const {
  LOCKSTEP_CHECK(tensor.defined(), "ExportedModule: the input '", input.name, "' is undefined");
  LOCKSTEP_CHECK(numbers_of(tensor.scalar_type()) == numbers_of(input.dtype),
                 "ExportedModule: the input '", input.name, "' has the dtype ",
                 tensor.scalar_type(), ", and was exported with ", input.dtype);
  LOCKSTEP_CHECK(tensor.dim() == static_cast<int64_t>(input.dimensions.size()),
                 "ExportedModule: the input '", input.name, "' has ", tensor.dim(),
                 " dimensions, and was exported with ", input.dimensions.size());
  for (size_t d = 0; d < input.dimensions.size(); ++d) {
    const Dimension& dimension = input.dimensions[d];
    const int64_t size = tensor.size(static_cast<int64_t>(d));
    LOCKSTEP_CHECK(dimension.size < 0 || dimension.size == size, "ExportedModule: dimension ", d,
                   " of the input '", input.name, "' has size ", size,
                   ", and was exported with the fixed size ", dimension.size,
                   ". To run other sizes, export with dynamic_shapes (torch.export.Dim)");
    if (dimension.symbol < 0) {
      continue;
    }
    const Symbol& symbol = symbols_[static_cast<size_t>(dimension.symbol)];
    LOCKSTEP_CHECK(size >= symbol.smallest && size <= symbol.largest, "ExportedModule: dimension ",
                   d, " of the input '", input.name, "' has size ", size,
                   ", and was exported for sizes from ", symbol.smallest, " to ", symbol.largest);
    Bound& first = bound[static_cast<size_t>(dimension.symbol)];
    const auto position = static_cast<size_t>(&input - inputs_.data());
    if (first.size < 0) {
      first = {size, position, d};
    }
    LOCKSTEP_CHECK(first.size == size, "ExportedModule: dimension ", d, " of the input '",
                   input.name, "' has size ", size, ", and dimension ", first.dimension,
                   " of the input '", inputs_[first.input].name, "' has size ", first.size,
                   ": they were exported as one dynamic dimension");
  }
}

void InputRules::bind(const std::vector<c10::IValue>& leaves, Values& values) const {
  LOCKSTEP_CHECK(leaves.size() == inputs_.size(), "ExportedModule: the program takes ",
                 inputs_.size(), " inputs (", c10::Join(", ", names()), "), not ", leaves.size());
  std::vector<Bound> bound(symbols_.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.tensor) {
      LOCKSTEP_CHECK(leaves[i].isTensor(), "ExportedModule: the input '", input.name,
                     "' must be a tensor");
      check(input, leaves[i].toTensor(), bound);
    } else {
      LOCKSTEP_CHECK(leaves[i].isInt(), "ExportedModule: the input '", input.name,
                     "' must be an int");
    }
    values[static_cast<size_t>(input.slot)] = leaves[i];
  }
}

}  // namespace lockstep::exported
