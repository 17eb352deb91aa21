#include <lockstep/checkpointing/snapshot/impl/safetensors_header.h>
#include <lockstep/collectives/exceptions.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using lockstep::snapshot::SafetensorsHeader;
using lockstep::snapshot::StoredTensor;

namespace {

/// What the rest of the code takes for granted about a header that was accepted.
void check(const SafetensorsHeader& header, size_t file_bytes) {
  uint64_t next = 0;
  for (const StoredTensor& tensor : header.tensors) {
    uint64_t bits = static_cast<uint64_t>(tensor.type->bits);
    for (const int64_t size : tensor.sizes) {
      bits *= static_cast<uint64_t>(size);
    }
    if (tensor.begin != next || (tensor.end - tensor.begin) * 8 != bits) {
      std::abort();
    }
    next = tensor.end;
  }
  if (header.data_begin + next != file_bytes) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(SafetensorsHeader::parse(text, "input"), size);
  } catch (const lockstep::Error&) {
    return 0;
  }
  return 0;
}
