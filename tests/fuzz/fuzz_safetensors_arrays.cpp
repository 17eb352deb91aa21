#include <lockstep/inputs/safetensors_arrays.h>

#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(data, size, [](const std::string& path) {
    const lockstep::SafetensorsArrays arrays(path, {"x"});
    if (arrays.size() > 0) {
      arrays.get(arrays.size() - 1);
    }
  });
}
