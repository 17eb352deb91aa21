#include "parser.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "../runtime/work.h"
#include "opcodes.h"

namespace fake_cuda {
namespace {

constexpr int kBytesOfInstruction = 16;

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

std::optional<int64_t> integer_in(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const int64_t value = strtoll(copy.c_str(), &end, 0);
  return copy.empty() || *end != '\0' ? std::nullopt : std::optional(value);
}

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

class Parser {
 public:
  Parser(const std::string& kernel, int registers) {
    program_.kernel = kernel;
    program_.registers = registers;
    literal(Literal{});
  }
  Program parse(const std::string& disassembly);

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw DeviceFault(cudaErrorNotSupported, "the machine does not know " + why + " in \"" + line_ +
                                                 "\" at " + std::to_string(pc_) +
                                                 " of the kernel " + program_.kernel);
  }
  void parse_line(std::string_view body);
  void parse_modifiers(const Opcode& opcode, std::string_view dotted, Instruction& i) const;
  Token parse_token(std::string_view text) const;
  int register_in(std::string_view text) const;
  Address parse_address(std::string_view inner) const;
  void parse_constant(std::string_view text, Token& token) const;
  bool assign(const char* shape, const std::vector<Token>& tokens, Instruction& i);
  bool assign_one(char role, const Token& token, Instruction& i);
  bool assign_value(const Token& token, bool may_be_immediate, Operand& operand);
  static bool assign_predicate(const Token& token, Predicate& predicate);
  uint16_t literal(const Literal& wanted);
  void finish(Instruction& i);

  Program program_;
  std::map<std::tuple<int, uint32_t, uint32_t, uint32_t>, uint16_t> literals_;
  std::string line_;      // of the instruction at hand
  uint32_t encoded_ = 0;  // its immediate, if it has one
  bool is_double_ = false;
  int pc_ = 0;
};

uint16_t Parser::literal(const Literal& wanted) {
  const auto [place, fresh] =
      literals_.try_emplace({wanted.bank, wanted.offset, wanted.low, wanted.high},
                            uint16_t(2 * program_.literals.size()));
  if (fresh) {
    if (program_.literals.size() > 30000) {
      refuse("so many constants");
    }
    program_.literals.push_back(wanted);
  }
  return place->second;
}

int Parser::register_in(std::string_view text) const {
  if (text == "RZ" || text == "URZ") {
    return kZero;
  }
  const bool is_uniform = take_prefix(text, "UR");
  if (!is_uniform && !take_prefix(text, "R")) {
    refuse("the register " + std::string(text));
  }
  const auto number = integer_in(text);
  if (!number || *number < 0 || *number >= (is_uniform ? kUniforms : program_.registers)) {
    refuse("the register " + std::string(text));
  }
  return int(*number) + (is_uniform ? kFirstUniform : kFirstGeneral);
}

/// "R2.64+UR4+0x10", "R0.X4", "UR4", "0x8", "R8+-0x2".
Address Parser::parse_address(std::string_view inner) const {
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
void Parser::parse_constant(std::string_view text, Token& token) const {
  token.kind = Token::Kind::kConstant;
  const size_t end_of_bank = text.find(']'), begin = text.find('[', end_of_bank);
  if (begin == std::string_view::npos || text.back() != ']') {
    refuse("a constant");
  }
  const auto bank = integer_in(text.substr(2, end_of_bank - 2));
  if (!bank || (*bank != 0 && *bank != 2 && *bank != 3 && *bank != 4)) {
    refuse("a constant bank");
  }
  token.address = parse_address(text.substr(begin + 1, text.size() - begin - 2));
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

Token Parser::parse_token(std::string_view text) const {
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
    parse_constant(text, token);
  } else if (text[0] == '[') {
    if (!take_suffix(text, "]")) {
      refuse("the operand " + whole);
    }
    token.kind = Token::Kind::kAddress;
    token.address = parse_address(text.substr(1));
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
    const bool is_number = number || isdigit(text.back()) || text == "+INF" || text == "-INF" ||
                           text == "+QNAN" || text == "-QNAN" || text == "+SNAN" || text == "-SNAN";
    if ((is_hex && !number) || !is_number) {
      refuse("the operand " + whole);
    }
    token.value = number ? *number : int64_t(encoded_);
    if (!is_hex && is_double_) {
      token.value = int64_t(uint64_t(encoded_) << 32);
    }
  }
  return token;
}

bool Parser::assign_predicate(const Token& token, Predicate& predicate) {
  if (token.kind != Token::Kind::kPredicate) {
    return false;
  }
  predicate.is_present = true;
  predicate.index = uint8_t(token.index);
  predicate.flip = token.invert ? ~0u : 0;
  return true;
}

bool Parser::assign_value(const Token& token, bool may_be_immediate, Operand& operand) {
  switch (token.kind) {
    case Token::Kind::kRegister:
    case Token::Kind::kUniform:
      operand.is_register = true;
      operand.index = uint16_t(token.index);
      break;
    case Token::Kind::kConstant:
      if (token.has_register) {
        return false;
      }
      operand.is_literal = true;
      operand.index = literal({token.address.bank, uint32_t(token.address.offset), 0, 0});
      break;
    case Token::Kind::kImmediate:
      if (!may_be_immediate) {
        return false;
      }
      operand.is_literal = true;
      operand.is_immediate = true;
      operand.index =
          literal({-1, 0, uint32_t(token.value), uint32_t(uint64_t(token.value) >> 32)});
      break;
    default:
      return false;
  }
  operand.is_present = true;
  operand.negate = token.negate;
  operand.invert = token.invert;
  operand.absolute = token.absolute;
  operand.part = token.part;
  return true;
}

bool Parser::assign_one(char role, const Token& token, Instruction& i) {
  using Kind = Token::Kind;
  switch (role) {
    case 'D':
      return !token.negate && !token.invert && !token.absolute && token.part == Part::kAll &&
             (token.kind == Kind::kRegister || token.kind == Kind::kUniform) &&
             assign_value(token, false, i.to);
    case 'F':
      return !token.invert && assign_predicate(token, i.to_flag);
    case 'G':
      return !token.invert && assign_predicate(token, i.to_flag2);
    case 'A':
      return assign_value(token, true, i.a);
    case 'B':
      return assign_value(token, true, i.b);
    case 'C':
      return assign_value(token, true, i.c);
    case 'W':
      return assign_value(token, false, i.c);
    case 'P':
      return assign_predicate(token, i.p);
    case 'Q':
      return assign_predicate(token, i.q);
    case 'R':
      return assign_predicate(token, i.r);
    case 'M':
      i.address = token.address;
      return token.kind == Kind::kAddress;
    case 'K':
      i.address = token.address;
      return token.kind == Kind::kConstant;
    case 'N':
      i.number = uint32_t(token.value);
      return token.kind == Kind::kImmediate;
    case 'O':
      i.number2 = uint32_t(token.value);
      return token.kind == Kind::kImmediate;
    case 'T':
      i.target = int(token.value / kBytesOfInstruction);
      return token.kind == Kind::kImmediate && token.value % kBytesOfInstruction == 0;
    case 'H':
      i.barrier = token.index;
      return token.kind == Kind::kBarrier;
    case 'S':
      i.special = Special(token.index);
      return token.kind == Kind::kSpecial;
    case 'X':
      return token.kind == Kind::kAllPredicates;
    default:
      return false;
  }
}

bool Parser::assign(const char* shape, const std::vector<Token>& tokens, Instruction& i) {
  size_t next = 0;
  for (; *shape != '\0' && *shape != '|'; ++shape) {
    if (*shape == '*') {
      return true;
    }
    const bool is_optional = islower(*shape);
    if (next < tokens.size() && assign_one(char(toupper(*shape)), tokens[next], i)) {
      ++next;
    } else if (!is_optional) {
      return false;
    }
  }
  return next == tokens.size();
}

void Parser::parse_modifiers(const Opcode& opcode, std::string_view dotted, Instruction& i) const {
  const auto contains = [](const char* list, std::string_view word) {
    const std::vector<std::string_view> words = split(list, ' ');
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  for (const std::string_view text : split(dotted, '.')) {
    if (contains(opcode.ignored, text)) {
      continue;
    }
    const auto mod = modifier_of(text);
    if (!mod || !contains(opcode.modifiers, text)) {
      refuse("the modifier " + std::string(text));
    }
    i.mods.set(*mod);
    if (const Type type = type_of(*mod); type != Type::kNone) {
      // F2F.F16.F32 names first what it makes.
      (i.to_type == Type::kNone ? i.to_type : i.from_type) = type;
    }
  }
}

void Parser::parse_line(std::string_view body) {
  Instruction i;
  i.pc = pc_;
  i.text = body;
  line_ = body;
  if (take_prefix(body, "@")) {
    const size_t end = std::min(body.find(' '), body.size());
    const Token guard = parse_token(body.substr(0, end));
    if (guard.kind != Token::Kind::kPredicate) {
      refuse("the guard");
    }
    i.guard = uint8_t(guard.index);
    i.guard_flip = guard.invert ? ~0u : 0;
    body = trimmed(body.substr(end));
  }
  const size_t end = std::min(body.find(' '), body.size());
  const std::string_view mnemonic = body.substr(0, end);
  std::string_view rest = trimmed(body.substr(end));
  const size_t dot = std::min(mnemonic.find('.'), mnemonic.size());
  const std::string_view name = mnemonic.substr(0, dot);
  const Opcode* opcode = opcode_of(name);
  if (opcode == nullptr) {
    refuse("the instruction " + std::string(name));
  }
  is_double_ = name == "DADD" || name == "DMUL" || name == "DFMA" || name == "DSETP";
  parse_modifiers(*opcode, mnemonic.substr(std::min(dot + 1, mnemonic.size())), i);
  i.execute = opcode->execute;
  i.is_uniform = name[0] == 'U';
  std::vector<Token> tokens;
  if (opcode->operands[0] != '*') {
    // RET and BRX separate their operands by a space.
    std::string copy(rest);
    if (name == "RET" || name == "BRX") {
      std::replace(copy.begin(), copy.end(), ' ', ',');
    }
    for (const std::string_view text : split(copy, ',')) {
      tokens.push_back(parse_token(text));
    }
    if (name[0] == 'H') {
      // A pair of 16-bit numbers is printed as two.
      for (size_t n = 0; n + 1 < tokens.size(); ++n) {
        if (tokens[n].kind == Token::Kind::kImmediate &&
            tokens[n + 1].kind == Token::Kind::kImmediate) {
          tokens[n].value = encoded_;
          tokens.erase(tokens.begin() + long(n) + 1);
        }
      }
    }
  }
  const Instruction blank = i;
  for (const char* shape = opcode->operands;; ++shape) {
    i = blank;
    if (assign(shape, tokens, i)) {
      break;
    }
    shape = strchr(shape, '|');
    if (shape == nullptr) {
      refuse("these operands");
    }
  }
  finish(i);
  program_.code.push_back(std::move(i));
}

/// What several functions need to know of an access to memory.
void Parser::finish(Instruction& i) {
  const Mods& mods = i.mods;
  if (mods[Mod::kU8] || mods[Mod::kS8]) {
    i.bytes = 1;
  } else if (mods[Mod::kU16] || mods[Mod::kS16]) {
    i.bytes = 2;
  } else if (mods[Mod::kB64] || mods[Mod::kU64] || mods[Mod::kS64] || mods[Mod::kF64]) {
    i.bytes = 8;
  } else if (mods[Mod::kB128]) {
    i.bytes = 16;
  }
  i.memory_slot = program_.memory_slots++;
  // Only generic and global addresses (.E) have 64 bits.
  i.address.base_is_wide = i.address.base_is_wide && mods[Mod::kE] && i.address.base != kZero;
  i.address.uniform_is_wide = mods[Mod::kE] && i.address.uniform != kZero;
  const std::string_view text = i.text;
  if (text.find("LDL") != std::string_view::npos || text.find("STL") != std::string_view::npos) {
    program_.uses_local_memory = true;
  }
}

Program Parser::parse(const std::string& disassembly) {
  std::istringstream lines(disassembly);
  for (std::string line; std::getline(lines, line);) {
    // "        /*0010*/    @P0 BRA 0x50 ;    /* 0x... */"; other lines hold the rest of an
    // encoding.
    const size_t begin = line.find("/*"), end = line.find("*/"), stop = line.find(';');
    if (begin == std::string::npos || stop == std::string::npos || line[begin + 2] == ' ') {
      continue;
    }
    pc_ = int(strtol(line.c_str() + begin + 2, nullptr, 16));
    if (pc_ != int(program_.code.size()) * kBytesOfInstruction) {
      throw DeviceFault(cudaErrorNotSupported, "the listing of " + program_.kernel + " has holes");
    }
    const size_t encoding = line.find("/* 0x", stop);
    if (encoding == std::string::npos) {
      throw DeviceFault(cudaErrorNotSupported,
                        "the listing of " + program_.kernel + " lacks encodings");
    }
    encoded_ = uint32_t(strtoull(line.c_str() + encoding + 3, nullptr, 16) >> 32);
    std::string_view body = std::string_view(line).substr(end + 2, stop - end - 2);
    body = trimmed(body);
    take_prefix(body, "{");
    parse_line(trimmed(body));
  }
  if (program_.code.empty()) {
    throw DeviceFault(cudaErrorNoKernelImageForDevice,
                      "the disassembler says nothing of " + program_.kernel);
  }
  return std::move(program_);
}

}  // namespace

Program parse_program(const std::string& kernel, const std::string& disassembly, int registers) {
  return Parser(kernel, registers).parse(disassembly);
}

}  // namespace fake_cuda
