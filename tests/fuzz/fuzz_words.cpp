#include <lockstep/inputs/word_vocabulary.h>

#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(
      data, size, [](const std::string& path) { lockstep::WordVocabulary().read(path); });
}
