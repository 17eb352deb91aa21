// What readers cost: memory in proportion to what they return, and time in proportion to the file.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/cifar_file.h>
#include <lockstep/inputs/csv_file.h>
#include <lockstep/inputs/idx_file.h>
#include <lockstep/inputs/image_file.h>
#include <lockstep/inputs/npy_array.h>
#include <lockstep/inputs/safetensors_arrays.h>
#include <lockstep/inputs/tar_shards.h>
#include <lockstep/inputs/word_vocabulary.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "allocation_counter.h"
#include "least_time.h"
#include "runtime/data_error.h"
#include "test_names.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

constexpr size_t kAnyReader = size_t{16} << 20;

/// Reads a file of write_samples.py, and returns how many bytes it got.
struct Reader {
  std::string file;  // with %, which is 1 or 2: the second has twice the content
  std::function<size_t(const std::string& path)> read;

  std::string path(const TemporaryFolder& folder, char size) const {
    std::string name = file;
    std::replace(name.begin(), name.end(), '%', size);
    return folder.file(name);
  }
};

size_t numbers_of(const std::string& path) {
  const CsvFile table(path);
  return table.numbers(table.columns()).nbytes();
}

/// All texts of a table, as strings.
size_t texts_of(const std::string& path) {
  const CsvFile table(path);
  size_t bytes = 0;
  for (const std::string& column : table.columns()) {
    for (const std::string& text : table.texts(column)) {
      bytes += sizeof(text) + text.size();
    }
  }
  return bytes;
}

size_t colours(const std::string& path) {
  return read_image(path).nbytes();
}

/// In grey; the rule counts an image in colour.
size_t grey(const std::string& path) {
  return 3 * read_image(path, 1).nbytes();
}

size_t files_of(const std::string& path) {
  const TarShards shards({path});
  size_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const auto& [extension, content] : shards.get(i).files) {
      bytes += extension.size() + content.size();
    }
  }
  return bytes;
}

size_t words_of(const std::string& path) {
  return WordVocabulary().read(path).nbytes();
}

std::vector<Reader> readers() {
  return {{"pixels.%.idx.gz", [](const auto& path) { return read_idx(path).nbytes(); }},
          {"numbers.%.idx", [](const auto& path) { return read_idx(path).nbytes(); }},
          {"%.cifar", [](const auto& path) { return read_cifar10({path}).images.nbytes(); }},
          {"rows.%.csv", numbers_of},
          {"rows.%.csv", texts_of},
          {"short.%.csv", numbers_of},
          {"columns.%.csv", numbers_of},
          {"quotes.%.csv", texts_of},
          {"%.txt", words_of},
          {"bool.%.npy", [](const auto& path) { return NpyArray(path).tensor().nbytes(); }},
          {"%.png", colours},
          {"%.png", grey},
          {"%.jpg", colours},
          {"%.jpg", grey},
          {"progressive.%.jpg", colours},
          {"progressive.%.jpg", grey},
          {"samples.%.tar", files_of},
          {"extensions.%.tar", files_of}};
}

TEST(ReaderBounds, MemoryIsAtMostFourTimesWhatIsReturned) {
  const WrittenByPython folder("sizes");
  for (const Reader& reader : readers()) {
    const std::string path = reader.path(folder, '2');
    size_t returned = 0;
    const size_t most = testing::most_allocated_by([&] { returned = reader.read(path); });
    EXPECT_GT(returned, 0U) << path;
    EXPECT_LE(most, 4 * returned + kAnyReader) << path << " returned " << returned;
  }
}

TEST(ReaderBounds, TimeIsLinearInTheSizeOfTheFile) {
  const WrittenByPython folder("sizes");
  for (const Reader& reader : readers()) {
    const double once = testing::least_time([&] { reader.read(reader.path(folder, '1')); });
    const double twice = testing::least_time([&] { reader.read(reader.path(folder, '2')); });
    EXPECT_LE(twice, 3 * once) << reader.file;
  }
}

/// Expects an Error with this text, before memory was taken.
void expect_refusal(const std::string& text, const std::function<void()>& read) {
  std::string error;
  EXPECT_LE(testing::most_allocated_by([&] { error = data_error(read); }), kAnyReader) << error;
  EXPECT_THAT(error, HasSubstr(text));
}

TEST(ReaderBounds, AGzipBombIsRefusedByEveryReader) {
  const WrittenByPython folder("bombs");
  const char* const text = "unpacks to more than 200 times its size";
  const std::string zeros = folder.file("zeros.gz");
  expect_refusal(text, [&] { read_cifar10({zeros}); });
  expect_refusal(text, [&] { CsvFile{zeros}; });
  expect_refusal(text, [&] { WordVocabulary().read(zeros); });
  expect_refusal(text, [&] { read_idx(folder.file("zeros.idx.gz")); });
}

TEST(ReaderBounds, AnIdxFileIsAsLongAsItsHeaderSaysBeforeItIsUnpacked) {
  const WrittenByPython folder("bombs");
  expect_refusal("trailing bytes after the data of shape [5]",
                 [&] { read_idx(folder.file("five.idx.gz")); });
}

TEST(ReaderBounds, AnImageHasAtMostAHundredScans) {
  const WrittenByPython folder("bombs");
  EXPECT_THAT(data_error([&] { read_image(folder.file("scans.jpg")); }),
              HasSubstr("scans.jpg: the JPEG data is damaged: it has more than 100 scans"));
}

TEST(ReaderBounds, TextsInAnImageTakeNoMemory) {
  const WrittenByPython folder("bombs");
  EXPECT_LE(testing::most_allocated_by([&] { read_image(folder.file("texts.png")); }), kAnyReader);
}

}  // namespace
}  // namespace lockstep
