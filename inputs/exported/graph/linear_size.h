#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::exported {

/// A size that torch.export derived from a dynamic dimension: factor * symbol + offset.
struct LinearSize {
  std::string symbol;
  int64_t factor = 1;
  int64_t offset = 0;

  /// Parses sympy's notation: "Add(Mul(Integer(2), Symbol('s13', ...)), Integer(1))". Empty for any
  /// other expression, and for one of several symbols.
  static std::optional<LinearSize> parse(const std::string& expression);

  /// The size for a value of the symbol; empty if it does not fit 64 bits.
  std::optional<int64_t> at(int64_t value) const;
  std::string text() const;  // "2*s13 + 1"
};

}  // namespace lockstep::exported
