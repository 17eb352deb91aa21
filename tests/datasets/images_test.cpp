#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/image_file.h>
#include <lockstep/inputs/image_folder.h>
#include <lockstep/inputs/npy_array.h>

#include <filesystem>

#include "damaged.h"
#include "error_of.h"
#include "runtime/data_error.h"
#include "test_names.h"
#include "working_directory.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

/// What Pillow makes of the image with this stem.
at::Tensor by_pillow(const TemporaryFolder& folder, const std::string& stem, int channels) {
  return NpyArray(folder.file(stem + (channels == 1 ? ".grey.npy" : ".rgb.npy"))).tensor();
}

int64_t largest_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<int64_t>();
}

TEST(ImageFolder, FindsClassesAndImagesInTheOrderOfTheirNames) {
  const WrittenByPython folder("images");
  const ImageFolder images(folder.path());
  EXPECT_THAT(images.classes(), ElementsAre("cat", "dog"));
  ASSERT_EQ(images.size(), 5U);
  std::vector<std::string> names;
  for (size_t i = 0; i < images.size(); ++i) {
    names.push_back(std::filesystem::path(images.path(i)).filename());
    EXPECT_EQ(images.label(i), i < 2 ? 0 : 1);
    EXPECT_EQ(images.get(i).second, images.label(i));
  }
  EXPECT_THAT(names, ElementsAre("a.png", "b.JPG", "grey.jpeg", "rgba.png", "spotted.png"));
}

TEST(ImageFolder, OfARelativeFolderIsReadFromWhereItWas) {
  const WrittenByPython folder("images");
  const testing::WorkingDirectory start(folder.path());
  const ImageFolder images("./");
  const testing::WorkingDirectory elsewhere("/tmp");
  EXPECT_EQ(images.get(0).second, 0);
}

TEST(ImageFolder, HasThePixelsOfPillow) {
  const WrittenByPython folder("images");
  for (const int channels : {3, 1}) {
    const ImageFolder images(folder.path(), ImageFolderOptions().channels(channels));
    for (size_t i = 0; i < images.size(); ++i) {
      const at::Tensor image = images.get(i).first;
      EXPECT_EQ(image.scalar_type(), at::kByte);
      EXPECT_TRUE(image.is_contiguous());
      const std::string stem = std::filesystem::path(images.path(i)).stem();
      const bool exact = images.path(i).find(".png") != std::string::npos;
      // Versions of libjpeg differ in the rounding of colours.
      EXPECT_LE(largest_difference(image, by_pillow(folder, stem, channels)), exact ? 0 : 2)
          << images.path(i);
    }
  }
}

TEST(ImageFolder, MakesSquaresOfOneSize) {
  const WrittenByPython folder("images");
  const ImageFolder images(folder.path(), ImageFolderOptions().side(8));
  for (size_t i = 0; i < images.size(); ++i) {
    EXPECT_EQ(images.get(i).first.sizes(), (std::vector<int64_t>{3, 8, 8}));
  }
}

TEST(ImageFolder, ScalesSixteenBitsToEight) {
  const WrittenByPython folder("images");
  const at::Tensor image = read_image(folder.file("wide.png"));
  const auto pixel = [&](int64_t y, int64_t x) { return (5 * y + 3 * x) % 200 + x * y % 7; };
  EXPECT_EQ(image[0][2][3].item<int64_t>(), pixel(2, 3));
  EXPECT_EQ(image[2][7][7].item<int64_t>(), pixel(7, 7));
}

TEST(ImageFolder, RefusesFoldersWithoutClassesOrImages) {
  const WrittenByPython folder("images");
  EXPECT_THAT(data_error([] { ImageFolder("/no/such/folder"); }),
              AllOf(HasSubstr("/no/such/folder"), HasSubstr("No such file")));
  EXPECT_THAT(data_error([&] { ImageFolder(folder.file("cat")); }), HasSubstr("has no sub-folder"));
  std::filesystem::create_directory(folder.file("empty"));
  EXPECT_THAT(data_error([&] { ImageFolder(folder.path()); }),
              HasSubstr("/empty: has no file *.jpg"));
  EXPECT_THAT(error_of([&] { ImageFolder(folder.path(), ImageFolderOptions().channels(4)); }),
              HasSubstr("channels is 4, expected 1 or 3"));
  EXPECT_THAT(error_of([&] { ImageFolder(folder.path(), ImageFolderOptions().side(-1)); }),
              HasSubstr("side is -1, expected 0 or more"));
}

TEST(ImageFile, RefusesWhatIsNoImage) {
  const WrittenByPython folder("images");
  EXPECT_THAT(data_error([&] { read_image(folder.file("none.png")); }),
              HasSubstr("none.png: cannot be opened"));
  EXPECT_THAT(data_error([&] { read_image(folder.file("notes.txt")); }),
              HasSubstr("notes.txt, byte 0: is neither a JPEG nor a PNG image"));
  EXPECT_THAT(data_error([&] { read_image(folder.file("cmyk.jpg")); }),
              HasSubstr("cmyk.jpg: is a CMYK image"));
  EXPECT_THAT(error_of([&] { read_image(folder.file("wide.png"), 2); }),
              HasSubstr("2 channels, expected 1 or 3"));
}

TEST(ImageFile, RefusesACutImage) {
  const WrittenByPython folder("images");
  for (const char* name : {"cat/a.png", "cat/b.JPG"}) {
    const std::string path = folder.file(name);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) * 3 / 4);
    EXPECT_THAT(data_error([&] { read_image(path); }), HasSubstr("data is damaged: "));
  }
}

/// 30,000 x 30,000 pixels in a few bytes.
TEST(ImageFile, RefusesAnImageThatIsTooLarge) {
  const WrittenByPython folder("images");
  std::fstream file(folder.file("cat/b.JPG"), std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t frame = bytes.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  file.seekp(static_cast<std::streamoff>(frame) + 5);
  file.write("\x75\x30\x75\x30", 4);
  file.close();
  EXPECT_THAT(data_error([&] { read_image(folder.file("cat/b.JPG")); }),
              HasSubstr("is 30000 x 30000 pixels, expected at most"));
}

TEST(ImageFile, SurvivesDamage) {
  const WrittenByPython folder("images");
  for (const char* name : {"cat/a.png", "cat/b.JPG", "dog/spotted.png"}) {
    testing::expect_all_damage_is_refused(folder.file(name), 300,
                                          [](const std::string& path) { read_image(path); });
  }
}

}  // namespace
}  // namespace lockstep
