#include <lockstep/collectives/check.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/input_rules.h>
#include <lockstep/inputs/exported/graph/linear_size.h>
#include <lockstep/inputs/exported/graph/tree.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

/// The path of each argument of forward() in the text of a relation: "['x']", "['d']['a'][1]".
std::vector<std::string> argument_paths(const Json& signature) {
  std::vector<std::string> paths = Tree::parse(signature.at("in_spec").get<std::string>()).paths();
  const Json& names = signature.at("forward_arg_names");
  for (std::string& path : paths) {
    const std::string positional = "[0][";
    const bool keyword = path.rfind(positional, 0) != 0;
    const size_t end = path.find(']', keyword ? 0 : positional.size());
    if (end == std::string::npos) {
      malformed("the arguments of forward() are not a tuple and a dict");
    }
    path = keyword
               ? path.substr(end + 1)
               : c10::str("['",
                          names.at(std::stoul(path.substr(positional.size()))).get<std::string>(),
                          "']", path.substr(end + 1));
  }
  return paths;
}

/// "['rest'][0]" of "['rest_0']": an element of Python's *rest. Empty for other paths.
std::string numbered_path(const std::string& path) {
  const size_t end = path.find("']");
  const size_t digits = path.find_last_not_of("0123456789", end - 1) + 1;
  if (digits == end || digits < 4 || path[digits - 1] != '_') {
    return "";
  }
  return c10::str(path.substr(0, digits - 1), "'][", path.substr(digits, end - digits), "]",
                  path.substr(end + 2));
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
  const auto linear = LinearSize::parse(value->at("expr_str").get<std::string>());
  if (!linear.has_value() || linear->factor < 1) {
    return {};  // an expression: the operators check it
  }
  const auto known = std::find(symbols_.begin(), symbols_.end(), linear->symbol);
  const auto symbol = static_cast<int>(known - symbols_.begin());
  if (known == symbols_.end()) {
    symbols_.push_back(linear->symbol);
  }
  const auto range = ranges_.find(linear->symbol);
  const auto [from, to] = range == ranges_.end() ? std::pair{int64_t{0}, kLargest} : range->second;
  Dimension dimension{-1, symbol, linear->factor, linear->offset, 0, kLargest};
  if (from > 0) {
    dimension.smallest = linear->at(from).value_or(kLargest);
  }
  if (to < kLargest) {
    dimension.largest = linear->at(to).value_or(kLargest);
  }
  return dimension;
}

std::string InputRules::describe(const Dimension& dimension) const {
  const std::string& symbol = symbols_[static_cast<size_t>(dimension.symbol)];
  return LinearSize{symbol, dimension.factor, dimension.offset}.text();
}

void InputRules::add(std::string name, int slot, const Json* meta) {
  Input input{std::move(name), slot, meta != nullptr, at::kLong, {}};
  if (meta != nullptr) {
    input.dtype = scalar_type(meta->at("dtype"));
    for (const Json& size : meta->at("sizes")) {
      input.dimensions.push_back(dimension_of(size));
    }
  }
  leaves_.push_back(static_cast<int>(inputs_.size()));
  inputs_.push_back(std::move(input));
}

void InputRules::add_constant() {
  leaves_.push_back(-1);
}

void InputRules::add_relations(const Json& program) {
  const auto relations = program.find("guards_code");
  if (relations == program.end() || relations->empty()) {
    return;
  }
  const Json& signature = program.at("graph_module").at("module_call_graph").at(0).at("signature");
  const std::vector<std::string> paths = argument_paths(signature);
  if (paths.size() != leaves_.size()) {
    malformed("forward() has ", paths.size(), " arguments, and the program ", leaves_.size());
  }
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (leaves_[i] >= 0) {
      const auto input = static_cast<size_t>(leaves_[i]);
      places.emplace(paths[i], input);
      places.emplace(c10::str("['flat_args'][", i, "]"), input);
      if (const std::string numbered = numbered_path(paths[i]); !numbered.empty()) {
        places.emplace(numbered, input);
      }
    }
  }
  for (const Json& relation : *relations) {
    relations_.emplace_back(relation.get<std::string>(), places);
  }
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
    if (dimension.symbol >= 0) {
      check_symbol(input, d, size, bound[static_cast<size_t>(dimension.symbol)]);
    }
  }
}

void InputRules::check_symbol(const Input& input, size_t d, int64_t size, Bound& first) const {
  const Dimension& dimension = input.dimensions[d];
  LOCKSTEP_CHECK(size >= dimension.smallest && size <= dimension.largest,
                 "ExportedModule: dimension ", d, " of the input '", input.name, "' has size ",
                 size, ", and was exported for sizes from ", dimension.smallest, " to ",
                 dimension.largest);
  if (first.size < 0) {
    first = {size, static_cast<size_t>(&input - inputs_.data()), d};
    return;
  }
  const Dimension& other = inputs_[first.input].dimensions[first.dimension];
  int64_t mine = 0;
  int64_t others = 0;
  const bool same = !__builtin_mul_overflow(size - dimension.offset, other.factor, &mine) &&
                    !__builtin_mul_overflow(first.size - other.offset, dimension.factor, &others) &&
                    mine == others;
  const bool alike = dimension.factor == other.factor && dimension.offset == other.offset;
  LOCKSTEP_CHECK(same, "ExportedModule: dimension ", d, " of the input '", input.name,
                 "' has size ", size, ", and dimension ", first.dimension, " of the input '",
                 inputs_[first.input].name, "' has size ", first.size, ": they were exported as ",
                 alike ? "one dynamic dimension" : describe(dimension) + " and " + describe(other));
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
  for (const Relation& relation : relations_) {
    LOCKSTEP_CHECK(relation.holds(leaves),
                   "ExportedModule: the sizes of the inputs do not fit: ", relation.text(),
                   " was exported");
  }
}

}  // namespace lockstep::exported
