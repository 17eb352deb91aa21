#include <lockstep/inputs/idx_file.h>

#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(data, size,
                                         [](const std::string& path) { lockstep::read_idx(path); });
}
