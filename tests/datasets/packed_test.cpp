// Files that are still packed as they were fetched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/cifar_file.h>
#include <lockstep/inputs/csv_file.h>
#include <lockstep/inputs/idx_file.h>
#include <lockstep/inputs/npy_array.h>
#include <lockstep/inputs/safetensors_arrays.h>
#include <lockstep/inputs/token_shards.h>
#include <lockstep/inputs/word_vocabulary.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/data_error.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

using Bytes = std::vector<unsigned char>;

/// A file of `size` bytes that has `mark` at `offset`, as the format's own programs write it.
Bytes marked(const std::string& mark, size_t offset = 0, size_t size = 4 * 3073) {
  Bytes bytes(size, 0);
  std::copy(mark.begin(), mark.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  return bytes;
}

TEST(PackedFile, IsNamedWithItsFormatByEveryReader) {
  using namespace std::string_literals;
  const TemporaryFolder folder;
  const std::pair<std::string, Bytes> files[] = {{"xz", marked("\xfd"
                                                               "7zXZ\0"s)},
                                                 {"zip", marked("PK\3\4"s)},
                                                 {"bzip2", marked("BZh91AY&SY"s)},
                                                 {"zstd", marked("\x28\xb5\x2f\xfd"s)},
                                                 {"tar", marked("ustar\00000"s, 257)},  // POSIX
                                                 {"tar", marked("ustar  \0"s, 257)}};   // GNU
  for (const auto& [format, bytes] : files) {
    const std::string path = folder.write("data.bin", bytes);
    const auto named =
        AllOf(HasSubstr("data.bin"), HasSubstr("this is a file of " + format), HasSubstr("unpack"));
    EXPECT_THAT(data_error([&] { read_cifar10({path}); }), named);
    EXPECT_THAT(data_error([&] { CsvFile{path}; }), named);
    EXPECT_THAT(data_error([&] { read_idx(path); }), named);
  }
}

TEST(ForeignFile, IsNamedAsWhatItIsByEveryReader) {
  const WrittenByPython folder("formats");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++files;
    const std::string path = entry.path().string();
    const std::string name = entry.path().filename().string();
    const auto named = HasSubstr("this is a file of " + name);
    EXPECT_THAT(data_error([&] { CsvFile{path}; }), named);
    EXPECT_THAT(data_error([&] { WordVocabulary().read(path); }), named);
    EXPECT_THAT(data_error([&] { read_idx(path); }), named);
    EXPECT_THAT(data_error([&] { read_cifar10({path}); }), named);
    EXPECT_THAT(data_error([&] { SafetensorsArrays(path, {"x"}); }), named);
    EXPECT_THAT(data_error([&] {
                  write_token_shards({path}, folder.file("shard"),
                                     [](const std::string&) { return std::vector<int64_t>{1}; });
                }),
                named);
    if (name == "numpy.save (.npy)") {
      EXPECT_THAT(data_error([&] { TokenShards({path}, TokenShardOptions().window(1)); }),
                  HasSubstr("this is a file of numpy.save"));
    } else {
      EXPECT_THAT(data_error([&] { NpyArray{path}; }), named);
    }
  }
  EXPECT_EQ(files, 14);
}

TEST(PackedFile, ShortFilesAndTextsThatBeginAlikeAreRead) {
  const TemporaryFolder folder;
  const std::string text = "BZh,PK\n1,2\n";
  const CsvFile file(folder.write("a.csv", Bytes(text.begin(), text.end())));
  EXPECT_EQ(file.text(0, "PK"), "2");
}

}  // namespace
}  // namespace lockstep
