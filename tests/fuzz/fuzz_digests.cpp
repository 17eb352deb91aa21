#include <sstream>

#include "diff/digest_diff.h"
#include "fuzz_file.h"

/// What `lockstep diff` reads.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(data, size, [](const std::string& path) {
    std::ostringstream out;
    lockstep::launcher::diff_runs(path, path, out, out);
  });
}
