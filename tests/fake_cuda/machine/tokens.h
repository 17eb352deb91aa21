#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "instruction.h"

/// The words of an instruction's text.
namespace fake_cuda {

std::string_view trimmed(std::string_view text);
/// Whether the text begins (ends) so; it is taken off then.
bool take_prefix(std::string_view& text, std::string_view prefix);
bool take_suffix(std::string_view& text, std::string_view suffix);
/// Without the spaces around the parts.
std::vector<std::string_view> split(std::string_view text, char separator);

/// One operand of the text; what it may be for is decided by the table of opcodes.
struct Token {
  enum class Kind {
    kRegister,
    kUniform,
    kPredicate,
    kBarrier,
    kSpecial,
    kAddress,
    kConstant,
    kImmediate,
    kAllPredicates
  };
  Kind kind = Kind::kImmediate;
  int index = 0;  // physical
  bool negate = false;
  bool invert = false;
  bool absolute = false;
  Part part = Part::kAll;
  Address address;
  bool has_register = false;  // of a constant
  int64_t value = 0;
};

/// The instruction at hand.
struct Line {
  std::string kernel;
  int registers = 0;  // of the kernel
  int pc = 0;
  std::string text;
  uint32_t encoded = 0;    // its immediate, if it has one
  bool is_double = false;  // what the immediate is

  [[noreturn]] void refuse(const std::string& why) const;
  /// Refuses what it does not know.
  Token token(std::string_view text) const;

 private:
  int register_in(std::string_view text) const;
  Address address_in(std::string_view inner) const;
  void read_constant(std::string_view text, Token& token) const;
};

}  // namespace fake_cuda
