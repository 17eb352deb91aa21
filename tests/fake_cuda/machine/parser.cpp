#include "parser.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>

#include "../common/work.h"
#include "opcodes.h"
#include "tokens.h"

namespace fake_cuda {
namespace {

constexpr int kBytesOfInstruction = 16;

class Parser {
 public:
  Parser(const std::string& kernel, int registers) {
    program_.kernel = kernel;
    program_.registers = registers;
    line_.kernel = kernel;
    line_.registers = registers;
    literal(Literal{});
  }
  Program parse(const std::string& disassembly);

 private:
  [[noreturn]] void refuse(const std::string& why) const { line_.refuse(why); }
  void parse_line(std::string_view body);
  void check_signs(std::string_view name, const Token& token) const;
  void parse_modifiers(const Opcode& opcode, std::string_view dotted, Instruction& i) const;
  bool assign(const char* shape, const std::vector<Token>& tokens, Instruction& i);
  bool assign_one(char role, const Token& token, Instruction& i);
  bool assign_value(const Token& token, bool may_be_immediate, Operand& operand);
  static bool assign_predicate(const Token& token, Predicate& predicate);
  uint16_t literal(const Literal& wanted);
  void finish(Instruction& i);

  Program program_;
  std::map<std::tuple<int, uint32_t, uint32_t, uint32_t>, uint16_t> literals_;
  Line line_;
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

/// Only some instructions have -R, |R|, ~R and R.H1; the functions of the others do not look for
/// them.
void Parser::check_signs(std::string_view name, const Token& token) const {
  constexpr std::string_view kSums[] = {"IMAD", "UIMAD", "IADD3", "UIADD3", "LEA", "ULEA"};
  constexpr std::string_view kInverts[] = {"FLO", "UFLO", "POPC", "UPOPC", "BREV", "UBREV"};
  const bool is_real =
      (strchr("FDH", name[0]) != nullptr && name != "FLO") || name == "MUFU" || name == "I2F";
  const bool is_sum = std::find(std::begin(kSums), std::end(kSums), name) != std::end(kSums);
  const bool inverts =
      is_sum || std::find(std::begin(kInverts), std::end(kInverts), name) != std::end(kInverts);
  constexpr std::string_view kParts[] = {"I2F", "F2F", "F2I", "FRND", "R2P", "P2R"};
  const bool has_parts =
      name[0] == 'H' || std::find(std::begin(kParts), std::end(kParts), name) != std::end(kParts);
  if ((token.part != Part::kAll && !has_parts) || (token.absolute && !is_real) ||
      (token.negate && !is_real && !is_sum) ||
      (token.invert && token.kind != Token::Kind::kPredicate && !inverts)) {
    refuse("the sign or part of an operand of " + std::string(name));
  }
}

void Parser::parse_line(std::string_view body) {
  Instruction i;
  i.pc = line_.pc;
  i.text = body;
  line_.text = body;
  if (take_prefix(body, "@")) {
    const size_t end = std::min(body.find(' '), body.size());
    const Token guard = line_.token(body.substr(0, end));
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
  line_.is_double = name == "DADD" || name == "DMUL" || name == "DFMA" || name == "DSETP";
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
      tokens.push_back(line_.token(text));
      check_signs(name, tokens.back());
    }
    if (name[0] == 'H') {
      // A pair of 16-bit numbers is printed as two.
      for (size_t n = 0; n + 1 < tokens.size(); ++n) {
        if (tokens[n].kind == Token::Kind::kImmediate &&
            tokens[n + 1].kind == Token::Kind::kImmediate) {
          tokens[n].value = line_.encoded;
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
    line_.pc = int(strtol(line.c_str() + begin + 2, nullptr, 16));
    if (line_.pc != int(program_.code.size()) * kBytesOfInstruction) {
      throw DeviceFault(cudaErrorNotSupported, "the listing of " + program_.kernel + " has holes");
    }
    const size_t encoding = line.find("/* 0x", stop);
    if (encoding == std::string::npos) {
      throw DeviceFault(cudaErrorNotSupported,
                        "the listing of " + program_.kernel + " lacks encodings");
    }
    line_.encoded = uint32_t(strtoull(line.c_str() + encoding + 3, nullptr, 16) >> 32);
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
