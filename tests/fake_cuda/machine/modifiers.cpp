#include "modifiers.h"

#include <unordered_map>

namespace fake_cuda {

std::optional<Mod> modifier_of(std::string_view text) {
  static const std::unordered_map<std::string_view, Mod> all = {
#define FAKE_CUDA_MODIFIER(name) {#name, Mod::k##name},
      FAKE_CUDA_MODIFIERS(FAKE_CUDA_MODIFIER)
#undef FAKE_CUDA_MODIFIER
          {"32", Mod::kB32},
      {"64", Mod::kB64},
      {"128", Mod::kB128},
      {"4A", Mod::k4A},
      {"2A", Mod::k2A}};
  const auto found = all.find(text);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

Type type_of(Mod mod) {
  switch (mod) {
    case Mod::kU8:
      return Type::kU8;
    case Mod::kS8:
      return Type::kS8;
    case Mod::kU16:
      return Type::kU16;
    case Mod::kS16:
      return Type::kS16;
    case Mod::kU32:
      return Type::kU32;
    case Mod::kS32:
      return Type::kS32;
    case Mod::kU64:
      return Type::kU64;
    case Mod::kS64:
      return Type::kS64;
    case Mod::kF16:
      return Type::kF16;
    case Mod::kF32:
      return Type::kF32;
    case Mod::kF64:
      return Type::kF64;
    case Mod::kBF16:
      return Type::kBF16;
    default:
      return Type::kNone;
  }
}

}  // namespace fake_cuda
