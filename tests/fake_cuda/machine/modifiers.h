#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>

/// What stands behind the dots of an instruction's name, where it changes what the instruction
/// does.
namespace fake_cuda {

// The enumerator and the text, once.
// clang-format off
#define FAKE_CUDA_MODIFIERS(M) \
  M(U8) M(S8) M(U16) M(S16) M(U32) M(S32) M(U64) M(S64) M(F16) M(F32) M(F64) M(BF16) M(F16x2) \
  M(BF16x2) M(BF16_V2) M(CAST) M(SPIN) M(X) M(HI) M(WIDE) M(EX) M(L) M(R) M(W) M(SX32) M(E) \
  M(U) M(SH) M(BF) M(FTZ) M(SAT) M(RN) M(RM) M(RP) M(RZ) M(NTZ) M(RELU) M(TRUNC) M(FLOOR) \
  M(CEIL) M(AND) M(OR) M(XOR) M(SUM) M(POPC) M(LT) M(EQ) M(LE) M(GT) M(NE) M(GE) M(NUM) M(NAN) \
  M(LTU) M(EQU) M(LEU) M(GTU) M(NEU) M(GEU) M(F) M(T) M(IDX) M(UP) M(DOWN) M(BFLY) M(ANY) \
  M(ALL) M(RCP) M(RSQ) M(EX2) M(LG2) M(SIN) M(COS) M(SQRT) M(RCP64H) M(RSQ64H) M(TANH) M(ADD) \
  M(MIN) M(MAX) M(CAS) M(EXCH) M(INC) M(DEC) M(ABS) M(REL) M(DIV) M(CONV) M(CLEAR) M(RED) \
  M(SYNC) M(ARV) M(RESULT) M(S) M(G) M(MOV) M(IADD) M(SHL)
// clang-format on

enum class Mod : uint8_t {
#define FAKE_CUDA_MODIFIER(name) k##name,
  FAKE_CUDA_MODIFIERS(FAKE_CUDA_MODIFIER)
#undef FAKE_CUDA_MODIFIER
      kB32,  // "32"
  kB64,      // "64"
  kB128,     // "128"
  k4A,       // "4A"
  k2A,       // "2A"
  kIgnored,  // of the memory order, caches, hints: nothing here depends on them
};

/// The modifiers of one instruction.
class Mods {
 public:
  bool operator[](Mod mod) const { return bits_[size_t(mod)]; }
  void set(Mod mod) { bits_.set(size_t(mod)); }

 private:
  std::bitset<128> bits_;
};

/// The modifier with this text, if it changes what an instruction does.
std::optional<Mod> modifier_of(std::string_view text);

/// A type of numbers as F2F, I2F, F2I name them.
enum class Type : uint8_t {
  kNone,
  kU8,
  kS8,
  kU16,
  kS16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF64,
  kBF16
};

inline bool is_float(Type type) {
  return type >= Type::kF16;
}

/// kNone if the modifier names no type.
Type type_of(Mod mod);

}  // namespace fake_cuda
