#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/cifar_file.h>

#include "runtime/data_error.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

using Bytes = std::vector<unsigned char>;

/// One record whose pixel p has the value (first + p) % 256.
Bytes record(Bytes labels, unsigned first) {
  for (unsigned p = 0; p < 3072; ++p) {
    labels.push_back(static_cast<unsigned char>(first + p));
  }
  return labels;
}

Bytes join(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(CifarFile, ReadsCifar10RecordsOfAllFilesInOrder) {
  const TemporaryFolder folder;
  const auto first = folder.write("1.bin", join({record({3}, 0), record({9}, 5)}));
  const auto second = folder.write("2.bin", record({0}, 100));
  const LabelledImages data = read_cifar10({first, second});
  EXPECT_EQ(data.images.sizes(), (std::vector<int64_t>{3, 3, 32, 32}));
  EXPECT_TRUE(at::equal(data.labels, at::tensor({3, 9, 0}, at::kLong)));
  EXPECT_EQ(data.images[1][0][0][0].item<int>(), 5);
  EXPECT_EQ(data.images[2][2][31][31].item<int>(), (100 + 3071) % 256);
  EXPECT_EQ(data.images[0][1][2][3].item<int>(), (1024 + 64 + 3) % 256);
}

TEST(CifarFile, TakesTheFineLabelOfCifar100) {
  const TemporaryFolder folder;
  const LabelledImages data =
      read_cifar100({folder.write("a", join({record({19, 99}, 1), record({0, 7}, 2)}))});
  EXPECT_TRUE(at::equal(data.labels, at::tensor({99, 7}, at::kLong)));
  EXPECT_EQ(data.images[1][0][0][0].item<int>(), 2);
}

TEST(CifarFile, RefusesATruncatedFileWithItsLength) {
  const TemporaryFolder folder;
  Bytes bytes = join({record({1}, 0), record({1}, 0)});
  bytes.pop_back();
  const auto path = folder.write("cut.bin", bytes);
  EXPECT_THAT(data_error([&] { read_cifar10({path}); }),
              AllOf(HasSubstr("cut.bin, byte 6145:"), HasSubstr("3072 bytes into a record"),
                    HasSubstr("records of 3073")));
}

TEST(CifarFile, RefusesTrailingBytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("long.bin", join({record({1, 2}, 0), {0}}));
  EXPECT_THAT(data_error([&] { read_cifar100({path}); }),
              AllOf(HasSubstr("byte 3075:"), HasSubstr("1 bytes into a record")));
}

TEST(CifarFile, RefusesALabelOutOfRangeWithItsOffset) {
  const TemporaryFolder folder;
  const auto ten = folder.write("10.bin", join({record({9}, 0), record({10}, 0)}));
  EXPECT_THAT(data_error([&] { read_cifar10({ten}); }),
              HasSubstr("byte 3073: label 10, expected one below 10"));
  const auto fine = folder.write("fine.bin", record({0, 100}, 0));
  EXPECT_THAT(data_error([&] { read_cifar100({fine}); }),
              HasSubstr("byte 1: label 100, expected one below 100"));
  const auto coarse = folder.write("coarse.bin", record({20, 1}, 0));
  EXPECT_THAT(data_error([&] { read_cifar100({coarse}); }),
              HasSubstr("byte 0: label 20, expected one below 20"));
}

TEST(CifarFile, RefusesEmptyAndMissingFilesAndNone) {
  const TemporaryFolder folder;
  EXPECT_THAT(data_error([&] { read_cifar10({folder.write("e", {})}); }),
              HasSubstr("the file is empty"));
  EXPECT_THAT(data_error([&] { read_cifar10({folder.file("none")}); }),
              HasSubstr("none: cannot be opened"));
  EXPECT_THAT(data_error([&] { read_cifar10({}); }), HasSubstr("no CIFAR file"));
}

}  // namespace
}  // namespace lockstep
