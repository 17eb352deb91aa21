#include <lockstep/inputs/exported/graph/relation.h>
#include <lockstep/inputs/exported/graph/source.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

std::string metadata(const Json& node, const char* field) {
  const auto found = node.find("metadata");
  return found != node.end() && found->contains(field) ? found->at(field).get<std::string>() : "";
}

/// The traces of a node, or of the nodes of its sub-graph.
std::string trace_of(const Json& node) {
  std::string trace = metadata(node, "stack_trace");
  if (!trace.empty() || !node.contains("inputs")) {
    return trace;
  }
  for (const Json& input : node.at("inputs")) {
    if (input.at("arg").contains("as_graph")) {
      for (const Json& inner : input.at("arg").at("as_graph").at("graph").at("nodes")) {
        trace += trace_of(inner) + "\n";
      }
    }
  }
  return trace;
}

/// The texts of a call's arguments, without spaces; empty if its parenthesis does not close.
std::optional<std::vector<std::string>> arguments_at(const std::string& code, size_t begin) {
  std::vector<std::string> arguments(1);
  int depth = 0;
  char quote = '\0';
  for (size_t i = begin; i < code.size(); ++i) {
    const char c = code[i];
    if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == ')' && depth == 0) {
      return arguments;
    } else {
      depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    }
    if (c == ',' && depth == 0 && quote == '\0') {
      arguments.emplace_back();
    } else if (c != ' ') {
      arguments.back() += c;
    }
  }
  return std::nullopt;
}

bool is_constant(const std::string& value) {
  char* end = nullptr;
  std::strtod(value.c_str(), &end);
  return value == "True" || (!value.empty() && *end == '\0');
}

bool constant_in(const std::vector<std::string>& arguments, const std::string& name,
                 size_t position) {
  size_t place = 0;
  for (const std::string& argument : arguments) {
    size_t equals = 0;
    while (equals < argument.size() && is_name(argument[equals])) {
      ++equals;
    }
    const bool keyword =
        equals + 1 < argument.size() && argument[equals] == '=' && argument[equals + 1] != '=';
    const std::string key = keyword ? argument.substr(0, equals) : "";
    if (argument.rfind('*', 0) == 0) {
      return false;
    }
    if (keyword ? key == name || key == "training" : place == position) {
      return is_constant(keyword ? argument.substr(equals + 1) : argument);
    }
    place += keyword ? 0 : 1;
  }
  return true;
}

}  // namespace

Source::Source(const Json& node) : trace_(trace_of(node)) {
  std::istringstream lines(trace_);
  bool in_torch = true;
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find("File \"");
    if (begin == std::string::npos) {
      code_ = in_torch || !code_.empty() ? code_ : line;
      continue;
    }
    in_torch = line.find("/torch/") != std::string::npos ||
               line.find("\"<eval_with_key>") != std::string::npos;  // code that torch.fx wrote
    code_.clear();
    if (!in_torch) {
      line_ = line.substr(begin);
    }
  }
  const std::string called = metadata(node, "torch_fn");
  function_ = called.substr(called.rfind('.') + 1);
  const std::string modules = metadata(node, "nn_module_stack");
  const std::string innermost = modules.substr(modules.rfind(',') + 1);
  if (innermost.rfind("torch.", 0) == 0) {
    code_.clear();
  }
}

bool Source::passes_constant(const std::string& name, size_t position) const {
  const std::string call = function_ + "(";
  bool found = false;
  for (size_t at = code_.find(call); at != std::string::npos; at = code_.find(call, at + 1)) {
    if (at > 0 && is_name(code_[at - 1])) {
      continue;
    }
    const auto arguments = arguments_at(code_, at + call.size());
    if (!arguments.has_value() || !constant_in(*arguments, name, position)) {
      return false;
    }
    found = true;
  }
  return found;
}

/// The stack has entries "key,path,class".
void add_module_types(const Json& node, std::unordered_map<std::string, std::string>& types) {
  std::istringstream entries(metadata(node, "nn_module_stack"));
  for (std::string entry; std::getline(entries, entry, ';');) {
    const auto first = entry.find(',');
    const auto last = entry.rfind(',');
    if (first < last && last != std::string::npos) {
      const auto dot = entry.rfind('.');
      types[entry.substr(first + 1, last - first - 1)] =
          entry.substr(dot != std::string::npos && dot > last ? dot + 1 : last + 1);
    }
  }
}

bool Source::comes_through(const std::string& file) const {
  return trace_.find(file) != std::string::npos;
}

}  // namespace lockstep::exported
