#include "tokens.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "../common/work.h"

namespace fake_cuda {
namespace {

std::optional<int64_t> integer_in(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const int64_t value = strtoll(copy.c_str(), &end, 0);
  return copy.empty() || *end != '\0' ? std::nullopt : std::optional(value);
}

std::optional<Special> special_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Special> all = {
      {"SRZ", Special::kZero},
      {"SR_TID.X", Special::kThreadX},
      {"SR_TID.Y", Special::kThreadY},
      {"SR_TID.Z", Special::kThreadZ},
      {"SR_CTAID.X", Special::kBlockX},
      {"SR_CTAID.Y", Special::kBlockY},
      {"SR_CTAID.Z", Special::kBlockZ},
      {"SR_LANEID", Special::kLane},
      {"SR_EQMASK", Special::kEqualMask},
      {"SR_LTMASK", Special::kLessMask},
      {"SR_LEMASK", Special::kLessEqualMask},
      {"SR_GTMASK", Special::kGreaterMask},
      {"SR_GEMASK", Special::kGreaterEqualMask},
      {"SR_CLOCKLO", Special::kClock}};
  const auto found = all.find(name);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') {
    text.remove_prefix(1);
  }
  while (!text.empty() && text.back() == ' ') {
    text.remove_suffix(1);
  }
  return text;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) {
    return false;
  }
  text.remove_prefix(prefix.size());
  return true;
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (text.size() < suffix.size() || text.substr(text.size() - suffix.size()) != suffix) {
    return false;
  }
  text.remove_suffix(suffix.size());
  return true;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

void Line::refuse(const std::string& why) const {
  throw DeviceFault(cudaErrorNotSupported, "the machine does not know " + why + " in \"" + text +
                                               "\" at " + std::to_string(pc) + " of the kernel " +
                                               kernel);
}

int Line::register_in(std::string_view text) const {
  if (text == "RZ" || text == "URZ") {
    return kZero;
  }
  const bool is_uniform = take_prefix(text, "UR");
  if (!is_uniform && !take_prefix(text, "R")) {
    refuse("the register " + std::string(text));
  }
  const auto number = integer_in(text);
  if (!number || *number < 0 || *number >= (is_uniform ? kUniforms : registers)) {
    refuse("the register " + std::string(text));
  }
  return int(*number) + (is_uniform ? kFirstUniform : kFirstGeneral);
}

/// "R2.64+UR4+0x10", "R0.X4", "UR4", "0x8", "R8+-0x2".
Address Line::address_in(std::string_view inner) const {
  Address address;
  for (std::string_view part : split(inner, '+')) {
    take_suffix(part, ".reuse");
    if (part.empty()) {
      refuse("an address");
    }
    if (part[0] == 'U') {
      address.uniform = uint16_t(register_in(part));
      address.uniform_is_wide = true;  // where the instruction's addresses are (finish())
    } else if (part[0] == 'R') {
      address.base_is_wide = true;
      for (const auto& [suffix, scale] :
           {std::pair(".X4", 4), {".X8", 8}, {".X16", 16}, {".U32", 1}, {".64", 1}}) {
        if (take_suffix(part, suffix)) {
          address.scale = uint8_t(scale);
          address.base_is_wide = suffix != std::string_view(".U32");
        }
      }
      address.base = uint16_t(register_in(part));
    } else {
      const auto offset = integer_in(part);
      if (!offset) {
        refuse("an address");
      }
      address.offset += *offset;
    }
  }
  return address;
}

/// "c[0x0][0x160]", "c[0x0][R4+0x160]", "c[0x0] [UR4]".
void Line::read_constant(std::string_view text, Token& token) const {
  token.kind = Token::Kind::kConstant;
  const size_t end_of_bank = text.find(']'), begin = text.find('[', end_of_bank);
  if (begin == std::string_view::npos || text.back() != ']') {
    refuse("a constant");
  }
  const auto bank = integer_in(text.substr(2, end_of_bank - 2));
  if (!bank || (*bank != 0 && *bank != 2 && *bank != 3 && *bank != 4)) {
    refuse("a constant bank");
  }
  token.address = address_in(text.substr(begin + 1, text.size() - begin - 2));
  token.address.bank = uint8_t(*bank);
  token.has_register = token.address.base != kZero || token.address.uniform != kZero;
  // The driver's part of bank 0: sizes of block and grid, the windows, the stack. The rest of it
  // has meanings that nobody documents; 0x118 describes memory to loads of compute capability 8.0.
  const int64_t offset = token.address.offset;
  const bool is_known = offset < 0x30 || (offset >= 0x118 && offset < 0x120) || offset >= 0x160;
  if (*bank == 0 && !token.has_register && !is_known) {
    refuse("a constant of the driver");
  }
}

Token Line::token(std::string_view text) const {
  const std::string whole(text);
  Token token;
  take_suffix(text, ".reuse");
  if (take_prefix(text, "!")) {
    token.invert = true;
  } else if (take_prefix(text, "~")) {
    token.invert = true;
  }
  // A sign before a register or a constant; that of a number is a part of it.
  if (text.size() > 1 && text[0] == '-' && strchr("Rc|U", text[1]) != nullptr) {
    token.negate = true;
    text.remove_prefix(1);
  }
  for (const auto& [suffix, part] : {std::pair(".H0_H0", Part::kLowHalf),
                                     {".H1_H1", Part::kHighHalf},
                                     {".H1", Part::kHighHalf},
                                     {".F32", Part::kFloat},
                                     {".B0", Part::kByte0},
                                     {".B1", Part::kByte1},
                                     {".B2", Part::kByte2},
                                     {".B3", Part::kByte3}}) {
    if (take_suffix(text, suffix)) {
      token.part = part;
      break;
    }
  }
  take_suffix(text, ".reuse");
  if (take_prefix(text, "|")) {
    token.absolute = true;
    if (!take_suffix(text, "|")) {
      refuse("the operand " + whole);
    }
  }
  take_suffix(text, ".reuse");
  if (text.empty()) {
    refuse("the operand " + whole);
  }
  if (text.substr(0, 2) == "c[") {
    read_constant(text, token);
  } else if (text[0] == '[') {
    if (!take_suffix(text, "]")) {
      refuse("the operand " + whole);
    }
    token.kind = Token::Kind::kAddress;
    token.address = address_in(text.substr(1));
  } else if (text == "PR") {
    token.kind = Token::Kind::kAllPredicates;
  } else if (text.substr(0, 2) == "SR") {
    const auto special = special_of(text);
    if (!special) {
      refuse("the special register " + whole);
    }
    token.kind = Token::Kind::kSpecial;
    token.index = int(*special);
  } else if (text[0] == 'R' || text.substr(0, 2) == "UR") {
    take_suffix(text, ".64");
    token.kind = text[0] == 'U' ? Token::Kind::kUniform : Token::Kind::kRegister;
    token.index = register_in(text);
  } else if (text[0] == 'P' || text.substr(0, 2) == "UP") {
    const bool is_uniform = take_prefix(text, "U");
    if (text.size() != 2 || (text[1] != 'T' && (text[1] < '0' || text[1] > '6'))) {
      refuse("the predicate " + whole);
    }
    token.kind = Token::Kind::kPredicate;
    token.index =
        (text[1] == 'T' ? kTrue : text[1] - '0') + (is_uniform ? kFirstUniformPredicate : 0);
  } else if (text[0] == 'B' && text.size() > 1 && isdigit(text[1])) {
    token.kind = Token::Kind::kBarrier;
    token.index = int(integer_in(text.substr(1)).value_or(99));
    if (token.index > 15) {
      refuse("the barrier " + whole);
    }
  } else {
    // A decimal fraction stands for the bits in the encoding.
    const bool is_hex = text.find("0x") != std::string_view::npos;
    const std::optional<int64_t> number = is_hex ? integer_in(text) : std::nullopt;
    const bool is_number = number || isdigit(text[text.find_first_not_of("+-.") % text.size()]) ||
                           text == "+INF" || text == "-INF" || text == "+QNAN" || text == "-QNAN" ||
                           text == "+SNAN" || text == "-SNAN";
    if ((is_hex && !number) || !is_number) {
      refuse("the operand " + whole);
    }
    token.value = number ? *number : int64_t(encoded);
    if (!is_hex && is_double) {
      token.value = int64_t(uint64_t(encoded) << 32);
    }
  }
  return token;
}

}  // namespace fake_cuda
