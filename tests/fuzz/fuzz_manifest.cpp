#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/collectives/exceptions.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using lockstep::snapshot::Manifest;

namespace {

/// A manifest that was accepted, once written, reads back the same.
void check(const Manifest& manifest) {
  const std::string text = manifest.render();
  if (Manifest::parse(text, "written").render() != text) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(Manifest::parse_unsealed(text, "input"));
  } catch (const lockstep::Error&) {
    return 0;
  }
  return 0;
}
