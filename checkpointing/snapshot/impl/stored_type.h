#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::snapshot {

/// An element type of the safetensors format.
struct StoredType {
  std::string_view name;                // as in the file: "F32", "BF16", ...
  int bits;                             // per element: 4 and 6 for the packed types
  std::optional<at::ScalarType> torch;  // empty for packed types: no tensor can hold them here
};

/// The type with this name, or null if the format has none.
const StoredType* find_stored_type(std::string_view name);
bool has_stored_type(at::ScalarType dtype);
/// The type that stores elements of this dtype. Throws Error with the name of the dtype if there is
/// none (complex128, quantized types).
const StoredType& stored_type_of(at::ScalarType dtype);

}  // namespace lockstep::snapshot
