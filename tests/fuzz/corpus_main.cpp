// Runs LLVMFuzzerTestOneInput on every file of a folder, on each of its beginnings, and on it with
// each byte changed in a few ways; of a long file on some of these. Ends with 0 unless the function
// aborts or the folder is empty.
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
  constexpr size_t kPlaces = 1000;
  constexpr uint8_t kChanges[] = {0x01, 0x10, 0x80, 0xff};
  size_t inputs = 1;
  run(bytes, bytes.size());
  for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / kPlaces) {
    run(bytes, at);
    for (const uint8_t change : kChanges) {
      bytes[at] ^= change;
      run(bytes, bytes.size());
      bytes[at] ^= change;
    }
    inputs += 5;
  }
  return inputs;
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
