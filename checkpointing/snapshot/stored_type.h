#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::snapshot {

/// An element type of the safetensors format.
struct StoredType {
  std::string_view name;                // as in the file: "F32", "BF16", ...
  int bits;                             // of one element: 4 and 6 for the packed types
  std::optional<at::ScalarType> torch;  // none for the packed types, which tensors cannot hold here
};

/// The type of this name, or null if the format has none.
const StoredType* find_stored_type(std::string_view name);
/// The type that holds elements of this dtype. Throws Error naming the dtype when there is none
/// (complex128, quantized types).
const StoredType& stored_type_of(at::ScalarType dtype);

}  // namespace lockstep::snapshot
