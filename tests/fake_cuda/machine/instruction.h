#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "modifiers.h"

/// A kernel's code in the form that is executed.
namespace fake_cuda {

class Warp;
struct Instruction;

/// Executes an instruction for the lanes of the mask, which is not empty.
using Execute = void (*)(Warp& warp, const Instruction& instruction, uint32_t mask);

// All registers of a warp lie in one array: first what reads as zero (as many as the widest access
// reads), then the uniform registers, each with its value in all lanes, then the general ones.
// Uniform instructions are thus executed by the functions of the others, with all lanes.
constexpr int kZero = 0;
constexpr int kZeros = 4;
constexpr int kUniforms = 63;
constexpr int kFirstUniform = kZeros;
constexpr int kFirstGeneral = kFirstUniform + kUniforms + 1;

// The same for predicates: P0 to P6, PT, UP0 to UP6, UPT.
constexpr int kTrue = 7;
constexpr int kFirstUniformPredicate = 8;
constexpr int kUniformTrue = 15;
constexpr int kPredicates = 16;

/// Which part of a 32-bit source an instruction takes.
enum class Part : uint8_t {
  kAll,
  kLowHalf,   // .H0_H0
  kHighHalf,  // .H1_H1
  kFloat,     // .F32 of a half instruction: the source is a float
  kByte0,     // .B0
  kByte1,
  kByte2,
  kByte3,
};

/// A value that an instruction reads, or the register that it writes.
struct Operand {
  bool is_present = false;
  bool is_register = false;
  bool is_literal = false;  // index: of Program::literals; the high word follows
  bool is_immediate = false;
  bool negate = false;
  bool invert = false;
  bool absolute = false;
  Part part = Part::kAll;
  uint16_t index = kZero;
};

/// A predicate that an instruction reads or writes. Absent ones read as true.
struct Predicate {
  bool is_present = false;
  uint8_t index = kTrue;
  uint32_t flip = 0;  // all ones: the predicate is inverted
};

/// The address of an access to memory, or the place in a constant bank.
struct Address {
  uint16_t base = kZero;     // a register
  uint16_t uniform = kZero;  // one more register, which is uniform
  bool base_is_wide = false;
  bool uniform_is_wide = false;
  uint8_t scale = 1;
  uint8_t bank = 0;
  int64_t offset = 0;
};

/// Special registers.
enum class Special : uint8_t {
  kZero,
  kThreadX,
  kThreadY,
  kThreadZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kLane,
  kEqualMask,
  kLessMask,
  kLessEqualMask,
  kGreaterMask,
  kGreaterEqualMask,
  kClock
};

struct Instruction {
  Execute execute = nullptr;
  bool is_uniform = false;  // once for the warp
  uint8_t guard = kTrue;    // a predicate
  uint32_t guard_flip = 0;
  Mods mods;
  Type to_type = Type::kNone;  // conversions
  Type from_type = Type::kNone;
  // Operands by their part in the instruction (opcodes.cpp says which stand in the text).
  Operand to, a, b, c;
  Predicate to_flag, to_flag2;
  Predicate p, q, r;
  Address address;
  uint32_t number = 0, number2 = 0;  // immediates
  int target = -1;                   // index of an instruction
  int barrier = -1;                  // a convergence barrier
  Special special = Special::kZero;
  int bytes = 4;         // of an access to memory
  int memory_slot = -1;  // where an access keeps the allocation that it used last
  int pc = 0;            // bytes
  std::string text;
};

/// A value that is the same for all lanes of a launch.
struct Literal {
  int bank = -1;  // a constant bank; -1: an immediate
  uint32_t offset = 0;
  uint32_t low = 0;
  uint32_t high = 0;

  bool operator==(const Literal&) const = default;
};

struct Program {
  std::string kernel;
  std::vector<Instruction> code;
  std::vector<Literal> literals;
  int registers = 0;  // general ones
  int memory_slots = 0;
  bool uses_local_memory = false;
};

}  // namespace fake_cuda
