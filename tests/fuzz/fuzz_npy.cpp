#include <lockstep/inputs/npy_array.h>

#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(data, size, [](const std::string& path) {
    const lockstep::NpyArray array(path);
    if (array.size() > 0) {
      array.get(array.size() - 1);
    }
  });
}
