#include <lockstep/checkpointing/snapshot/impl/stored_type.h>
#include <lockstep/collectives/check.h>

#include <array>

namespace lockstep::snapshot {
namespace {

const std::array<StoredType, 22> kTypes = {{
    {"BOOL", 8, at::kBool},
    {"U8", 8, at::kByte},
    {"I8", 8, at::kChar},
    {"F8_E4M3", 8, at::kFloat8_e4m3fn},
    {"F8_E5M2", 8, at::kFloat8_e5m2},
    {"F8_E8M0", 8, at::kFloat8_e8m0fnu},
    {"F8_E4M3FNUZ", 8, at::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", 8, at::kFloat8_e5m2fnuz},
    {"I16", 16, at::kShort},
    {"U16", 16, at::kUInt16},
    {"F16", 16, at::kHalf},
    {"BF16", 16, at::kBFloat16},
    {"I32", 32, at::kInt},
    {"U32", 32, at::kUInt32},
    {"F32", 32, at::kFloat},
    {"I64", 64, at::kLong},
    {"U64", 64, at::kUInt64},
    {"F64", 64, at::kDouble},
    {"C64", 64, at::kComplexFloat},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
}};

const StoredType* find_by_dtype(at::ScalarType dtype) {
  for (const StoredType& type : kTypes) {
    if (type.torch == dtype) {
      return &type;
    }
  }
  return nullptr;
}

}  // namespace

const StoredType* find_stored_type(std::string_view name) {
  for (const StoredType& type : kTypes) {
    if (type.name == name) {
      return &type;
    }
  }
  return nullptr;
}

bool has_stored_type(at::ScalarType dtype) {
  return find_by_dtype(dtype) != nullptr;
}

const StoredType& stored_type_of(at::ScalarType dtype) {
  const StoredType* type = find_by_dtype(dtype);
  LOCKSTEP_CHECK_CODE(type != nullptr, ExitCode::snapshot, "safetensors has no element type for ",
                      dtype, "; convert the tensor to a type it has before saving it");
  return *type;
}

}  // namespace lockstep::snapshot
