#pragma once

#include <lockstep/inputs/exported/graph/argument.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::exported {

/// Checks the caller's inputs: dtypes, sizes, and equal sizes of dimensions that share a symbol.
class InputRules {
 public:
  /// Reads the range_constraints of the program.
  explicit InputRules(const nlohmann::json& program);

  /// Adds the next input. `meta`: its sizes and dtype; null for an integer.
  void add(std::string name, int slot, const nlohmann::json* meta);

  size_t size() const { return inputs_.size(); }
  std::vector<std::string> names() const;
  /// Checks `leaves` and writes them to their slots. Throws Error (exit code usage).
  void bind(const std::vector<c10::IValue>& leaves, Values& values) const;

 private:
  struct Dimension {
    int64_t size = -1;  // -1: any
    int symbol = -1;    // -1: none
  };
  struct Input {
    std::string name;
    int slot;
    bool tensor;
    at::ScalarType dtype;
    std::vector<Dimension> dimensions;
  };
  struct Symbol {
    std::string name;
    int64_t smallest;
    int64_t largest;
  };
  struct Bound {
    int64_t size = -1;
    size_t input = 0;
    size_t dimension = 0;
  };

  Dimension dimension_of(const nlohmann::json& size);
  void check(const Input& input, const at::Tensor& tensor, std::vector<Bound>& bound) const;

  std::unordered_map<std::string, std::pair<int64_t, int64_t>> ranges_;
  std::vector<Input> inputs_;
  std::vector<Symbol> symbols_;
};

}  // namespace lockstep::exported
