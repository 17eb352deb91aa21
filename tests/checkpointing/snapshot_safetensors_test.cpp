#include "checkpointing/snapshot_rejected.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace lockstep::snapshot {
namespace {

using ::lockstep::testing::rejection_of;
using ::lockstep::testing::TemporaryFolder;

/// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(data_bytes, '\x01');
}

std::string rejection_of_text(const std::string& text) {
  return rejection_of([&] { SafetensorsHeader::parse(text, "a.safetensors"); });
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string read_text(const std::string& path) {
  return std::string(MappedFile(path).text());
}

TEST(SafetensorsHeaders, HeaderThatDoesNotFitTheDataIsRejected) {
  const auto header = [](const std::string& entries) { return "{" + entries + "}"; };
  const std::string eight = entry("F32", "[2]", "[0,8]");
  EXPECT_NO_THROW(SafetensorsHeader::parse(file_of(header("\"a\":" + eight), 8), "a"));
  const struct {
    std::string entries;
    size_t data;
    const char* says;
  } cases[] = {
      {"\"a\":" + eight + ",\"a\":" + eight, 8, "duplicate key \"a\""},
      {"\"a\":" + eight + ",\"b\":" + entry("F32", "[1]", "[12,16]"), 16, "hole"},
      {"\"a\":" + entry("F32", "[2]", "[4,12]"), 12, "hole"},
      {"\"a\":" + eight + ",\"b\":" + entry("F32", "[2]", "[4,12]"), 12, "overlaps"},
      {"\"a\":" + eight, 7, "truncated"},
      {"\"a\":" + eight, 9, "trailing bytes"},
      {"", 1, "trailing bytes"},
      {"\"a\":" + entry("F32", "[3]", "[0,8]"), 8, "make 12 bytes"},
      {"\"a\":" + entry("F32", "[2]", "[8,0]"), 8, "two ascending byte numbers"},
      {"\"a\":" + entry("F32", "[2]", "[-8,0]"), 8, "two ascending byte numbers"},
      {"\"a\":" + entry("F32", "[2]", "[0,8,9]"), 8, "two ascending byte numbers"},
      {"\"a\":" + entry("F32", "[2.0]", "[0,8]"), 8, "is no size"},
      {"\"a\":" + entry("F32", "[-2]", "[0,8]"), 8, "is no size"},
      {"\"a\":" + entry("F32", "[9223372036854775808]", "[0,8]"), 8, "is no size"},
      {"\"a\":" + entry("F32", "[4294967296,4294967298]", "[0,8]"), 8, "2^64 bits"},
      {"\"a\":" + entry("F32", "[4611686018427387904,4,0]", "[0,0]"), 0, "2^64 bits"},
      {"\"a\":" + entry("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "at most 8 sizes"},
      {"\"a\":" + entry("F4", "[3]", "[0,1]"), 1, "whole number of bytes"},
      {"\"a\":" + entry("F33", "[2]", "[0,8]"), 8, "unknown dtype"},
      {R"("a":{"dtype":"F32","shape":[2]})", 8, "exactly dtype, shape and data_offsets"},
      {R"("a":{"dtype":7,"shape":[2],"data_offsets":[0,8]})", 8, "unknown dtype"},
      {R"("a":7)", 8, "exactly dtype, shape and data_offsets"},
      {R"("__metadata__":{"a":7})", 0, "__metadata__ must map texts to texts"},
      {R"("__metadata__":[])", 0, "__metadata__ must map texts to texts"},
      {R"("__metadata__":[7])", 0, "__metadata__ must map texts to texts"},
      {"\"a\":[[[[1]]]]", 8, "nested deeper"},
      {"\"\xff\":" + eight, 8, "not JSON"},
      {"\"" + std::string(5000, 'n') + "\":" + eight, 8, "at most 4096"},
  };
  for (const auto& [entries, data, says] : cases) {
    EXPECT_THAT(rejection_of_text(file_of(header(entries), data)), HasSubstr(says)) << entries;
  }
}

TEST(SafetensorsHeaders, HeaderLengthBombsAreRejectedBeforeMemoryIsTaken) {
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100'000'001}}) {
    std::string text = file_of("{}", 0);
    text.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
    EXPECT_THAT(rejection_of_text(text), HasSubstr("at most 100000000"));
  }
  EXPECT_THAT(rejection_of_text(file_of("{}", 0).substr(0, 9)), HasSubstr("truncated"));
  EXPECT_THAT(rejection_of_text("1234567"), HasSubstr("too few"));
  EXPECT_THAT(rejection_of_text(""), HasSubstr("too few"));
  EXPECT_THAT(rejection_of_text(file_of("", 0)), HasSubstr("'{'"));
  EXPECT_THAT(rejection_of_text(file_of("[]", 0)), HasSubstr("'{'"));
  EXPECT_THAT(rejection_of_text(file_of(" {}", 0)), HasSubstr("'{'"));
  EXPECT_THAT(rejection_of_text(file_of("{} x", 0)), HasSubstr("not JSON"));
}

TEST(SafetensorsHeaders, HeaderOfTooManyTensorsIsRejected) {
  std::string header = "{";
  for (int tensor = 0; tensor <= 200'000; ++tensor) {
    header += "\"" + std::to_string(tensor) + "\":" + entry("U8", "[0]", "[0,0]") + ",";
  }
  header.back() = '}';
  EXPECT_THAT(rejection_of_text(file_of(header, 0)), HasSubstr("at most 200000"));
}

TEST(SafetensorsHeaders, FileTruncatedAnywhereIsRejected) {
  const TemporaryFolder folder;
  save_safetensors(folder.file("a"), {{"w", at::arange(300, at::kFloat)}, {"b", at::ones({7})}});
  const std::string whole = read_text(folder.file("a"));
  EXPECT_NO_THROW(SafetensorsHeader::parse(whole, "a"));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(rejection_of_text(whole.substr(0, size)), "") << size;
  }
}

TEST(Safetensors, EveryDtypeComesBackWithTheSameBits) {
  const TemporaryFolder folder;
  const at::Tensor numbers = at::arange(-6, 6, at::kFloat).view({3, 4});
  NamedTensors tensors;
  for (const at::ScalarType dtype :
       {at::kBool, at::kByte, at::kChar, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e8m0fnu,
        at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kShort, at::kUInt16, at::kHalf,
        at::kBFloat16, at::kInt, at::kUInt32, at::kFloat, at::kLong, at::kUInt64, at::kDouble,
        at::kComplexFloat}) {
    tensors.emplace_back(c10::toString(dtype), numbers.to(dtype));
  }
  save_safetensors(folder.file("a"), tensors);
  const SafetensorsFile file(folder.file("a"));
  EXPECT_EQ(file.header().tensors.size(), tensors.size());
  EXPECT_EQ(file.header().data_begin % 8, 0U);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor read = file.tensor(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type());
    EXPECT_EQ(read.sizes(), tensor.sizes());
    EXPECT_EQ(std::memcmp(read.const_data_ptr(), tensor.const_data_ptr(), tensor.nbytes()), 0)
        << name;
  }
}

TEST(Safetensors, StridesViewsAndConjugatesAreWrittenAsTheyRead) {
  const TemporaryFolder folder;
  const at::Tensor image = at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor wave = at::randn({4}, at::kComplexFloat).conj();
  save_safetensors(folder.file("a"), {{"image", image},
                                      {"t", image.permute({3, 2, 1, 0})},
                                      {"part", image.select(0, 1)},
                                      {"wave", wave},
                                      {"scalar", at::scalar_tensor(3.5)},
                                      {"empty", at::empty({0, 4})}});
  const SafetensorsFile file(folder.file("a"));
  EXPECT_TRUE(at::equal(file.tensor("image"), image));
  EXPECT_TRUE(at::equal(file.tensor("t"), image.permute({3, 2, 1, 0})));
  EXPECT_TRUE(at::equal(file.tensor("part"), image.select(0, 1)));
  EXPECT_TRUE(at::equal(file.tensor("wave"), wave.resolve_conj()));
  EXPECT_EQ(file.tensor("scalar").dim(), 0);
  EXPECT_EQ(file.tensor("scalar").item<float>(), 3.5F);
  EXPECT_EQ(file.tensor("empty").sizes(), at::IntArrayRef({0, 4}));
}

TEST(Safetensors, HeaderWithoutPaddingIsReadThroughACopy) {
  const TemporaryFolder folder;
  std::string text = file_of("{\"a\":" + entry("F32", "[2]", "[0,8]") + "}", 0);
  ASSERT_NE(text.size() % 4, 0U);
  const float values[] = {1.5F, -2.0F};
  text.append(reinterpret_cast<const char*>(values), sizeof values);
  folder.write("a", {text.begin(), text.end()});
  const at::Tensor read = SafetensorsFile(folder.file("a")).tensor("a");
  EXPECT_EQ(read[0].item<float>(), 1.5F);
  EXPECT_EQ(read[1].item<float>(), -2.0F);
}

TEST(Safetensors, TensorOutlivesItsFileAndWritingToItLeavesTheFileAlone) {
  const TemporaryFolder folder;
  save_safetensors(folder.file("a"), {{"w", at::ones({5})}});
  at::Tensor read = SafetensorsFile(folder.file("a")).tensor("w");
  read.fill_(7);
  EXPECT_TRUE(at::equal(SafetensorsFile(folder.file("a")).tensor("w"), at::ones({5})));
  EXPECT_TRUE(at::equal(read, at::full({5}, 7.0F)));
}

TEST(Safetensors, WhatCannotBeSavedIsNamedAndLeavesTheOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  save_safetensors(path, {{"w", at::ones({5})}});
  const auto refused = [&](const std::string& name, const at::Tensor& tensor) {
    return rejection_of([&] { save_safetensors(path, {{name, tensor}}); });
  };
  EXPECT_THAT(refused("z", at::ones({2}, at::kComplexDouble)), HasSubstr("ComplexDouble"));
  EXPECT_THAT(refused("u", at::Tensor()), HasSubstr("\"u\" is undefined"));
  EXPECT_THAT(refused("s", at::ones({2}).to_sparse()),
              HasSubstr("\"s\" cannot be saved: it has the layout Sparse"));
  EXPECT_THAT(refused("__metadata__", at::ones({2})), HasSubstr("\"__metadata__\""));
  EXPECT_THAT(refused("", at::ones({2})), HasSubstr("under the name"));
  EXPECT_THAT(refused("\xff", at::ones({2})), HasSubstr("UTF-8"));
  EXPECT_THAT(refused("n", at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1})), HasSubstr("9 dimensions"));
  EXPECT_THAT(rejection_of([&] {
                save_safetensors(path, {{"a", at::ones(1)}, {"a", at::ones(1)}});
              }),
              HasSubstr("taken by another"));
  EXPECT_TRUE(at::equal(SafetensorsFile(path).tensor("w"), at::ones({5})));
}

TEST(Safetensors, FileThatIsNoRegularFileIsRejected) {
  const TemporaryFolder folder;
  save_safetensors(folder.file("a"), {{"w", at::ones({5})}});
  ASSERT_EQ(::symlink(folder.file("a").c_str(), folder.file("link").c_str()), 0);
  ASSERT_EQ(::mkfifo(folder.file("fifo").c_str(), 0600), 0);
  const auto refused = [&](const char* name) {
    return rejection_of([&] { SafetensorsFile{folder.file(name)}; });
  };
  EXPECT_THAT(refused("link"), HasSubstr("symbolic link"));
  EXPECT_THAT(refused("fifo"), HasSubstr("not a regular file"));
  EXPECT_THAT(refused("."), HasSubstr("not a regular file"));
  EXPECT_THAT(refused("absent"), HasSubstr("No such file"));
  EXPECT_THAT(rejection_of([&] { SafetensorsFile(folder.file("a")).tensor("v"); }),
              HasSubstr("no tensor \"v\""));
}

TEST(Safetensors, DigestIsTheOneOfXxhsum) {
  EXPECT_EQ(digest_of(""), "2d06800538d394c2");  // xxhsum -H3 of nothing
  EXPECT_TRUE(is_digest("2d06800538d394c2"));
  EXPECT_FALSE(is_digest("2D06800538D394C2"));
  EXPECT_FALSE(is_digest("2d06800538d394c"));
}

}  // namespace
}  // namespace lockstep::snapshot
