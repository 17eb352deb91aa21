#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/idx_file.h>
#include <unistd.h>
#include <zlib.h>

#include "runtime/data_error.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes operator+(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Bytes header(unsigned char type, const std::vector<uint32_t>& shape) {
  Bytes bytes = {0, 0, type, static_cast<unsigned char>(shape.size())};
  for (const uint32_t size : shape) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<unsigned char>(size >> shift));
    }
  }
  return bytes;
}

Bytes counting(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<unsigned char>(i % 251);
  }
  return bytes;
}

void write_gzip(const std::string& path, const Bytes& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

std::string error_for(const Bytes& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("broken", bytes);
  std::string message = data_error([&] { read_idx(path); });
  EXPECT_THAT(message, HasSubstr(path));
  return message;
}

TEST(IdxFile, ReadsBytesAsStored) {
  const TemporaryFolder folder;
  const at::Tensor read = read_idx(folder.write("a", header(8, {2, 3, 4}) + counting(24)));
  EXPECT_TRUE(at::equal(read, at::arange(24, at::kByte).view({2, 3, 4})));
}

TEST(IdxFile, ReadsWiderElementsFromBigEndian) {
  const TemporaryFolder folder;
  const Bytes shorts = {0x01, 0x02, 0xff, 0xfe};
  EXPECT_TRUE(at::equal(read_idx(folder.write("s", header(0x0B, {2}) + shorts)),
                        at::tensor({0x0102, -2}, at::kShort)));
  const Bytes floats = {0x3f, 0x80, 0, 0, 0xc0, 0x20, 0, 0};
  EXPECT_TRUE(at::equal(read_idx(folder.write("f", header(0x0D, {2, 1}) + floats)),
                        at::tensor({1.0F, -2.5F}).view({2, 1})));
  const Bytes one = {0x3f, 0xf0, 0, 0, 0, 0, 0, 0};
  EXPECT_TRUE(at::equal(read_idx(folder.write("d", header(0x0E, {1}) + one)),
                        at::tensor({1.0}, at::kDouble)));
}

TEST(IdxFile, ReadsGzip) {
  const TemporaryFolder folder;
  const Bytes content = header(8, {70000}) + counting(70000);
  write_gzip(folder.file("a.gz"), content);
  EXPECT_TRUE(at::equal(read_idx(folder.file("a.gz")), read_idx(folder.write("a", content))));
}

TEST(IdxFile, TensorOutlivesTheReader) {
  at::Tensor read;
  {
    const TemporaryFolder folder;
    read = read_idx(folder.write("a", header(8, {3}) + Bytes{5, 6, 7}));
  }
  EXPECT_EQ(read.sum().item<int64_t>(), 18);
}

TEST(IdxFile, RefusesAMissingFile) {
  EXPECT_THAT(data_error([] { read_idx("/no/such/file"); }),
              AllOf(HasSubstr("/no/such/file"), HasSubstr("No such file")));
}

TEST(IdxFile, RefusesAFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(data_error([&] { read_idx(folder.path()); }), HasSubstr(folder.path()));
}

TEST(IdxFile, RefusesAnEmptyFile) {
  EXPECT_THAT(error_for({}), HasSubstr("byte 0: the file is empty"));
}

TEST(IdxFile, RefusesABadMagicNumber) {
  EXPECT_THAT(error_for({'P', 'K', 3, 4, 0, 0}), HasSubstr("byte 0: bad magic number"));
  EXPECT_THAT(error_for({0, 0}), HasSubstr("byte 2: the file ends in the magic number"));
}

TEST(IdxFile, RefusesAnUnknownElementType) {
  EXPECT_THAT(error_for(header(7, {1}) + Bytes{0}), HasSubstr("byte 2: element type 7"));
}

TEST(IdxFile, RefusesBadDimensions) {
  EXPECT_THAT(error_for(header(8, {})), HasSubstr("byte 3: 0 dimensions"));
  EXPECT_THAT(error_for(header(8, {4, 0})), HasSubstr("byte 8: dimension 1 is 0"));
  Bytes cut = header(8, {4, 4});
  cut.resize(10);
  EXPECT_THAT(error_for(cut), HasSubstr("byte 10: the file ends in the header"));
}

TEST(IdxFile, RefusesDimensionsWhoseProductOverflows) {
  const uint32_t huge = 0xffffffff;
  EXPECT_THAT(error_for(header(8, {huge, huge, huge}) + Bytes(9)),
              HasSubstr("byte 8: the dimensions multiply to more than 2^63 bytes"));
  // 2^64 wraps to 0 elements, which would pass for a file without data.
  EXPECT_THAT(error_for(header(8, {1U << 31, 1U << 31, 4})), HasSubstr("byte 12"));
}

TEST(IdxFile, RefusesTruncatedData) {
  EXPECT_THAT(error_for(header(8, {2, 5}) + counting(9)),
              AllOf(HasSubstr("byte 21:"), HasSubstr("9 bytes of data, expected 10")));
}

TEST(IdxFile, RefusesTrailingBytes) {
  EXPECT_THAT(error_for(header(8, {2, 5}) + counting(13)),
              AllOf(HasSubstr("byte 22:"), HasSubstr("3 trailing bytes")));
}

TEST(IdxFile, RefusesATruncatedGzip) {
  const TemporaryFolder folder;
  Bytes noise(50000);
  uint32_t state = 1;
  for (auto& byte : noise) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<unsigned char>(state >> 24);
  }
  write_gzip(folder.file("cut.gz"), header(8, {50000}) + noise);
  ASSERT_EQ(truncate(folder.file("cut.gz").c_str(), 30000), 0);
  EXPECT_THAT(data_error([&] { read_idx(folder.file("cut.gz")); }),
              AllOf(HasSubstr("cut.gz, byte "), HasSubstr("gzip file ends here")));
}

TEST(IdxFile, RefusesAGzipWithAFlippedByte) {
  const TemporaryFolder folder;
  write_gzip(folder.file("a.gz"), header(8, {70000}) + counting(70000));
  std::fstream file(folder.file("a.gz"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-6, std::ios::end);  // in the checksum
  file.put('\x5a');
  file.close();
  EXPECT_THAT(data_error([&] { read_idx(folder.file("a.gz")); }),
              AllOf(HasSubstr("a.gz, byte "), HasSubstr("cannot be read")));
}

class IdxImages : public ::testing::Test {
 protected:
  void images(const Bytes& bytes) { folder_.write("train-images-idx3-ubyte", bytes); }
  void labels(const Bytes& bytes) { folder_.write("train-labels-idx1-ubyte", bytes); }
  LabelledImages read() { return read_idx_images(folder_.path(), "train"); }
  TemporaryFolder folder_;
};

TEST_F(IdxImages, PairsImagesWithLabels) {
  images(header(8, {3, 2, 2}) + counting(12));
  labels(header(8, {3}) + Bytes{9, 0, 4});
  const LabelledImages data = read();
  EXPECT_EQ(data.images.sizes(), (std::vector<int64_t>{3, 1, 2, 2}));
  EXPECT_TRUE(at::equal(data.labels, at::tensor({9, 0, 4}, at::kLong)));
  const auto [batch, classes] = data.get_batch({2, 0});
  EXPECT_TRUE(at::equal(batch[0].flatten(), at::tensor({8, 9, 10, 11}, at::kByte)));
  EXPECT_TRUE(at::equal(classes, at::tensor({4, 9}, at::kLong)));
}

TEST_F(IdxImages, FindsTheGzipBesideThePlainName) {
  write_gzip(folder_.file("train-images-idx3-ubyte.gz"), header(8, {1, 1, 1}) + Bytes{7});
  labels(header(8, {1}) + Bytes{1});
  EXPECT_EQ(read().images.item<int>(), 7);
}

TEST_F(IdxImages, RefusesDifferentCounts) {
  images(header(8, {3, 2, 2}) + counting(12));
  labels(header(8, {2}) + Bytes{1, 2});
  EXPECT_THAT(data_error([&] { read(); }), HasSubstr("has 2 labels, expected 3"));
}

TEST_F(IdxImages, RefusesALabelOutOfRangeWithItsOffset) {
  images(header(8, {3, 2, 2}) + counting(12));
  labels(header(8, {3}) + Bytes{1, 2, 10});
  EXPECT_THAT(data_error([&] { read(); }), HasSubstr("byte 10: label 10, expected one below 10"));
}

TEST_F(IdxImages, RefusesSwappedFiles) {
  images(header(8, {3}) + Bytes{1, 2, 3});
  labels(header(8, {3}) + Bytes{1, 2, 3});
  EXPECT_THAT(data_error([&] { read(); }), HasSubstr("expected uint8 images of 3 dimensions"));
}

TEST_F(IdxImages, NamesTheMissingFile) {
  EXPECT_THAT(data_error([&] { read(); }), HasSubstr("train-images-idx3-ubyte: cannot be opened"));
}

}  // namespace
}  // namespace lockstep
