#include <lockstep/inputs/token_shards.h>

#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(data, size, [](const std::string& path) {
    const lockstep::TokenShards shards({path},
                                       lockstep::TokenShardOptions().window(4).vocabulary(1000));
    for (size_t i = 0; i < shards.size(); ++i) {
      shards.get(i);
    }
  });
}
