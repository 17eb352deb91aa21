#pragma once

#include <lockstep/inputs/exported/graph/argument.h>
#include <lockstep/inputs/exported/graph/relation.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::exported {

/// Checks the caller's inputs: dtypes, sizes, dimensions that share a symbol, and the relations
/// between sizes that the program keeps as text.
class InputRules {
 public:
  /// Reads the range_constraints of the program.
  explicit InputRules(const nlohmann::json& program);

  /// Adds the next input. `meta`: its sizes and dtype; null for an integer.
  void add(std::string name, int slot, const nlohmann::json* meta);
  /// Notes that the next argument of Python's forward() is part of the program.
  void add_constant();
  /// Reads the relations of the program, after its inputs were added.
  void add_relations(const nlohmann::json& program);

  size_t size() const { return inputs_.size(); }
  std::vector<std::string> names() const;
  /// Checks `leaves` and writes them to their slots. Throws Error (exit code usage).
  void bind(const std::vector<c10::IValue>& leaves, Values& values) const;

 private:
  /// A fixed size, or factor * symbol + offset.
  struct Dimension {
    int64_t size = -1;  // -1: any
    int symbol = -1;    // -1: none
    int64_t factor = 1;
    int64_t offset = 0;
    int64_t smallest = 0;
    int64_t largest = 0;
  };
  struct Input {
    std::string name;
    int slot;
    bool tensor;
    at::ScalarType dtype;
    std::vector<Dimension> dimensions;
  };
  /// The first dimension of a run that a symbol has.
  struct Bound {
    int64_t size = -1;
    size_t input = 0;
    size_t dimension = 0;
  };

  Dimension dimension_of(const nlohmann::json& size);
  std::string describe(const Dimension& dimension) const;
  void check(const Input& input, const at::Tensor& tensor, std::vector<Bound>& bound) const;
  void check_symbol(const Input& input, size_t d, int64_t size, Bound& first) const;

  std::unordered_map<std::string, std::pair<int64_t, int64_t>> ranges_;
  std::vector<Input> inputs_;
  std::vector<int> leaves_;  // the input of each argument of forward(); -1: part of the program
  std::vector<std::string> symbols_;
  std::vector<Relation> relations_;
};

}  // namespace lockstep::exported
