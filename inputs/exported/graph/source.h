#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>

namespace lockstep::exported {

/// What a program says of the Python code of a node.
class Source {
 public:
  /// `node`: of the graph. A node without a line of its own has that of its sub-graph.
  explicit Source(const nlohmann::json& node);

  /// The innermost line outside of torch: `File "model.py", line 13, in forward`.
  const std::string& line() const { return line_; }
  /// The function of torch that Python called: "dropout".
  const std::string& function() const { return function_; }
  /// True if the code passes a constant, or nothing, for an argument of the function: what
  /// `model.eval()` does not change. False where the line does not show it, and in torch's modules,
  /// which pass the mode. `position`: of the argument; `name`: another name than Python's training.
  bool passes_constant(const std::string& name, size_t position) const;
  /// True if `file` of torch is among the callers.
  bool comes_through(const std::string& file) const;

 private:
  std::string trace_;
  std::string line_;
  std::string code_;  // of the innermost line; empty if that is in torch
  std::string function_;
};

/// Adds Python's classes of the modules that a node belongs to, by their paths.
void add_module_types(const nlohmann::json& node,
                      std::unordered_map<std::string, std::string>& types);

}  // namespace lockstep::exported
