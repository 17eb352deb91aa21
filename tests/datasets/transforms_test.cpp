#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/image_transforms.h>
#include <lockstep/inputs/labelled_images.h>
#include <lockstep/inputs/transformed_dataset.h>
#include <lockstep/runtime/loader.h>

#include <set>

#include "error_of.h"
#include "test_names.h"

namespace lockstep {
namespace {

at::Tensor counting(int64_t channels, int64_t height, int64_t width) {
  return at::arange(1, channels * height * width + 1, at::kByte).view({channels, height, width});
}

TEST(ImageTransforms, ARandomCropIsAWindowOfThePaddedImage) {
  const at::Tensor image = counting(2, 4, 6);
  for (const int64_t padding : {0, 3}) {
    const at::Tensor padded = at::constant_pad_nd(image, {padding, padding, padding, padding});
    std::set<std::pair<int64_t, int64_t>> places;
    for (int i = 0; i < 400; ++i) {
      const at::Tensor window = random_crop(image, 3, 2, padding);
      bool found = false;
      for (int64_t top = 0; top <= padded.size(1) - 3; ++top) {
        for (int64_t left = 0; left <= padded.size(2) - 2; ++left) {
          if (at::equal(padded.narrow(1, top, 3).narrow(2, left, 2), window)) {
            found = true;
            places.emplace(top, left);
          }
        }
      }
      ASSERT_TRUE(found);
    }
    // All windows occur. Those of padding alone look alike.
    const auto windows = static_cast<size_t>((padded.size(1) - 2) * (padded.size(2) - 1));
    EXPECT_GE(places.size(), windows * 9 / 10);
  }
  EXPECT_TRUE(at::equal(random_crop(image, 4, 6), image));
}

TEST(ImageTransforms, AFlipMirrorsLeftAndRight) {
  const at::Tensor image = counting(3, 2, 4);
  EXPECT_TRUE(at::equal(random_flip(image, 0.0), image));
  EXPECT_TRUE(at::equal(random_flip(image, 1.0), image.flip(2)));
  int flipped = 0;
  for (int i = 0; i < 400; ++i) {
    flipped += at::equal(random_flip(image), image) ? 0 : 1;
  }
  EXPECT_GT(flipped, 120);
  EXPECT_LT(flipped, 280);
}

TEST(ImageTransforms, NormalizedHasMeanAndDeviationOfEachChannel) {
  const at::Tensor image = counting(2, 3, 3);
  const at::Tensor found = normalized(image, {0.5, 0.25}, {0.1, 0.2});
  const at::Tensor expected =
      (image.to(at::kDouble) / 255 - at::tensor({0.5, 0.25}, at::kDouble).view({2, 1, 1})) /
      at::tensor({0.1, 0.2}, at::kDouble).view({2, 1, 1});
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected, 1e-5, 1e-6));
  const at::Tensor real = at::tensor({2.0F, 4.0F}).view({1, 1, 2});
  EXPECT_TRUE(at::equal(normalized(real, {1.0}, {2.0}), at::tensor({0.5F, 1.5F}).view({1, 1, 2})));
}

TEST(ImageTransforms, ResizedRefusesDtypesWhoseValuesItWouldCut) {
  const at::Tensor deep = at::full({1, 4, 4}, 1000, at::kShort);
  for (const int64_t side : {2, 4}) {
    EXPECT_THAT(error_of([&] { resized(deep, side, side); }),
                HasSubstr("an image of Short, expected uint8 or floating point"));
  }
  const at::Tensor fine = at::full({1, 4, 4}, 1.0 + 1e-12, at::kDouble);
  EXPECT_NEAR(resized(fine, 2, 2)[0][0][0].item<double>(), 1.0 + 1e-12, 1e-15);
}

TEST(ImageTransforms, ResizedKeepsWhatIsSmooth) {
  const at::Tensor slope = at::arange(0, 64, at::kByte).view({1, 1, 64}).expand({3, 48, 64});
  const at::Tensor small = resized(slope, 24, 32);
  EXPECT_EQ(small.sizes(), (std::vector<int64_t>{3, 24, 32}));
  EXPECT_EQ(small.scalar_type(), at::kByte);
  const at::Tensor wanted = at::arange(0, 32, at::kInt) * 2 + 1;  // 0.5 more, rounded to even
  const at::Tensor inner = small[1][12].narrow(0, 2, 28).to(at::kInt);
  EXPECT_LE((inner - wanted.narrow(0, 2, 28)).abs().max().item<int>(), 1);
  EXPECT_TRUE(at::equal(resized(slope, 48, 64), slope));
}

TEST(ImageTransforms, ASquareIsTheMiddle) {
  const at::Tensor image = at::zeros({1, 10, 30}, at::kByte);
  image.narrow(2, 10, 10).fill_(200);
  EXPECT_TRUE(at::equal(square(image, 10), at::full({1, 10, 10}, 200, at::kByte)));
  EXPECT_EQ(square(image.transpose(1, 2), 7).sizes(), (std::vector<int64_t>{1, 7, 7}));
  EXPECT_EQ(square(counting(3, 5, 7), 12).sizes(), (std::vector<int64_t>{3, 12, 12}));
}

TEST(ImageTransforms, RefuseWhatIsOutOfRange) {
  const at::Tensor image = counting(2, 4, 6);
  EXPECT_THAT(error_of([&] { random_crop(image, 5, 2); }), HasSubstr("a window of 5 x 2 pixels"));
  EXPECT_THAT(error_of([&] { random_crop(image, 2, 2, -1); }), HasSubstr("padding is -1"));
  EXPECT_THAT(error_of([&] { random_crop(image[0], 2, 2); }),
              HasSubstr("[channels, height, width]"));
  EXPECT_THAT(error_of([&] { random_flip(image, 1.5); }), HasSubstr("probability is 1.5"));
  EXPECT_THAT(error_of([&] { normalized(image, {0.5}, {0.5}); }), HasSubstr("1 means"));
  EXPECT_THAT(error_of([&] { normalized(image, {0, 0}, {1, 0}); }), HasSubstr("deviation 0"));
  EXPECT_THAT(error_of([&] { resized(image, 0, 3); }), HasSubstr("to 0 x 3 pixels"));
  EXPECT_THAT(error_of([&] { resized(image, int64_t{1} << 40, 3); }),
              HasSubstr("pixels, expected"));
  EXPECT_THAT(error_of([&] { square(at::zeros({3, 0, 4}), 2); }), HasSubstr("expected an image"));
  EXPECT_THAT(error_of([&] { square(image, 0); }), HasSubstr("of 0 pixels"));
}

/// Images of an epoch, augmented, in the order of their labels.
at::Tensor augmented_epoch(int workers, int rank, int ranks, int64_t batch_size) {
  const LabelledImages images = {at::arange(40 * 3 * 8 * 8).view({40, 3, 8, 8}).to(at::kByte),
                                 at::arange(40)};
  auto dataset = transformed(images, [](const std::pair<at::Tensor, int64_t>& sample) {
    const at::Tensor image = random_flip(random_crop(sample.first, 8, 8, 2));
    return std::make_pair(normalized(image, {0.5, 0.5, 0.5}, {0.2, 0.2, 0.2}), sample.second);
  });
  Loader<decltype(dataset)> loader(
      std::move(dataset), rank, ranks, /*seed=*/3,
      LoaderOptions().batch_size(batch_size).shuffle(true).workers(workers));
  at::Tensor all = at::zeros({40, 3, 8, 8});
  for (auto& [x, y] : loader) {
    all.index_copy_(0, y, x);
  }
  return all;
}

TEST(ImageTransforms, WorkersAndRanksDoNotChangeAnAugmentedSample) {
  const at::Tensor expected = augmented_epoch(0, 0, 1, 4);
  EXPECT_TRUE(at::equal(augmented_epoch(3, 0, 1, 4), expected));
  const at::Tensor shared = augmented_epoch(2, 0, 2, 5) + augmented_epoch(0, 1, 2, 5);
  EXPECT_TRUE(at::equal(shared, expected));
}

TEST(TransformedDataset, HasTheSizeOfTheOther) {
  const LabelledImages images = {at::zeros({5, 1, 2, 2}, at::kByte), at::arange(5)};
  auto labels = transformed(images, [](const auto& sample) { return 10 * sample.second; });
  EXPECT_EQ(labels.size(), 5U);
  EXPECT_EQ(labels.get(3), 30);
}

TEST(TransformedDataset, AFunctionMayTakeTheImageAlone) {
  const LabelledImages images = {at::ones({5, 1, 2, 2}, at::kByte), at::arange(5)};
  auto doubled = transformed(images, [](const at::Tensor& image) { return image * 2; });
  EXPECT_EQ(doubled.get(3).second, 3);
  EXPECT_TRUE(at::equal(doubled.get(3).first, at::full({1, 2, 2}, 2, at::kByte)));
  auto sums = transformed(images, [](at::Tensor image) { return image.sum().item<int64_t>(); });
  EXPECT_EQ(sums.get(2), (std::pair<int64_t, int64_t>(4, 2)));
}

TEST(TransformedDataset, AFunctionMayWriteIntoItsImage) {
  const LabelledImages images = {at::ones({5, 1, 2, 2}, at::kByte), at::arange(5)};
  auto blacked = transformed(images, [](const auto& sample) {
    sample.first.zero_();
    return sample;
  });
  EXPECT_EQ(blacked.get(3).second, 3);
  EXPECT_TRUE(at::equal(images.images, at::ones({5, 1, 2, 2}, at::kByte)));
}

}  // namespace
}  // namespace lockstep
