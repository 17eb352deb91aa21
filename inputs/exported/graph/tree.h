#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::exported {

/// The containers of a program's output (Python's pytree).
class Tree {
 public:
  /// Parses the text of a TreeSpec. Throws Malformed, or nlohmann::json::exception.
  static Tree parse(const std::string& text);

  size_t leaves() const;
  bool is_leaf() const { return kind_ == Kind::leaf; }
  /// The name of each leaf: keys and positions, joined by dots. Empty for a tree of one leaf.
  std::vector<std::string> names() const;
  /// The place of each leaf in Python's notation: "[0]['key'][1]".
  std::vector<std::string> paths() const;
  /// `leaves` in their containers: tuples, lists, dicts from str.
  c10::IValue build(const std::vector<c10::IValue>& leaves) const;

 private:
  enum class Kind : uint8_t { leaf, tuple, list, dict };

  static Tree parse(const nlohmann::json& spec, int depth);
  c10::IValue build(const std::vector<c10::IValue>& leaves, size_t& next) const;
  void name(const std::string& prefix, std::vector<std::string>& names) const;
  void path(const std::string& prefix, std::vector<std::string>& paths) const;

  Kind kind_ = Kind::leaf;
  std::vector<std::string> keys_;  // of a dict
  std::vector<Tree> children_;
};

}  // namespace lockstep::exported
