// Runs LLVMFuzzerTestOneInput on every file of a folder, on each of its beginnings, and on it with
// each byte changed in a few ways. Ends with 0 unless the function aborts or the folder is empty.
#include <dirent.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  if (DIR* entries = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(entries)) {
      if (entry->d_name[0] != '.') {
        files.push_back(folder + "/" + entry->d_name);
      }
    }
    closedir(entries);
  }
  return files;
}

/// A copy of its own size, so that a sanitizer sees every read past the end.
void run(const Bytes& bytes, size_t size) {
  const Bytes exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

size_t run_with_mutations(Bytes bytes) {
  run(bytes, bytes.size());
  for (size_t size = 0; size < bytes.size(); ++size) {
    run(bytes, size);
  }
  const uint8_t changes[] = {0x01, 0x10, 0x80, 0xff};
  for (uint8_t& byte : bytes) {
    const uint8_t original = byte;
    for (const uint8_t change : changes) {
      byte = original ^ change;
      run(bytes, bytes.size());
    }
    byte = original;
  }
  return 1 + 5 * bytes.size();
}

}  // namespace

int main(int argc, char** argv) {
  size_t inputs = 0;
  for (int folder = 1; folder < argc; ++folder) {
    for (const std::string& file : files_in(argv[folder])) {
      std::ifstream stream(file, std::ios::binary);
      inputs += run_with_mutations({std::istreambuf_iterator<char>(stream), {}});
    }
  }
  std::printf("%zu inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
