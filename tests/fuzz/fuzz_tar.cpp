#include <lockstep/inputs/tar_shards.h>

#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(data, size, [](const std::string& path) {
    const lockstep::TarShards shards({path});
    for (size_t i = 0; i < shards.size(); ++i) {
      shards.get(i);
    }
  });
}
