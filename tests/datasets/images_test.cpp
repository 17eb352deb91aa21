#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/image_file.h>
#include <lockstep/inputs/image_folder.h>
#include <lockstep/inputs/npy_array.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

// After <cstdio>, whose names it uses.
#include <jpeglib.h>

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

TEST(ImageFolder, LeavesOutWhatIsHidden) {
  const WrittenByPython folder("images");
  const size_t images = ImageFolder(folder.path()).size();
  std::filesystem::copy(folder.file("cat"), folder.file(".ipynb_checkpoints"));
  std::filesystem::create_directory(folder.file("cat/.ipynb_checkpoints"));
  folder.write("cat/._a.png", {0, 5, 0x16, 7});
  std::filesystem::create_symlink("nowhere", folder.file("cat/.b.png"));
  const ImageFolder with_hidden(folder.path());
  EXPECT_THAT(with_hidden.classes(), ElementsAre("cat", "dog"));
  EXPECT_EQ(with_hidden.size(), images);
}

TEST(ImageFolder, NamesALinkToWhatIsNotThere) {
  const WrittenByPython folder("images");
  std::filesystem::create_symlink("../notes.txt", folder.file("cat/link.txt"));
  std::filesystem::create_symlink("a.png", folder.file("cat/linked.png"));
  EXPECT_EQ(ImageFolder(folder.path()).size(), 6U);
  std::filesystem::create_symlink("../.git/annex/objects/x", folder.file("cat/c.jpg"));
  EXPECT_THAT(data_error([&] { ImageFolder(folder.path()); }),
              AllOf(HasSubstr("/cat/c.jpg: is a link to ../.git/annex/objects/x"),
                    HasSubstr("git annex get")));
  std::filesystem::remove(folder.file("cat/c.jpg"));
  std::filesystem::create_symlink("cat/../missing", folder.file("bird"));
  EXPECT_THAT(data_error([&] { ImageFolder(folder.path()); }), HasSubstr("/bird: is a link to"));
}

TEST(ImageFolder, ReadsFoldersInAClassInTheOrderOfTorchvision) {
  const WrittenByPython folder("images");
  std::filesystem::create_directories(folder.file("cat/b/.git"));
  std::filesystem::create_directory(folder.file("cat/b-c"));
  for (const char* name : {"b/2.png", "b/10.png", "b-c/1.png", "b/.git/1.png"}) {
    std::filesystem::copy(folder.file("cat/a.png"), folder.file(std::string("cat/") + name));
  }
  const ImageFolder images(folder.path());
  std::vector<std::string> cats;
  for (size_t i = 0; i < images.size(); ++i) {
    if (images.label(i) == 0) {
      cats.push_back(std::filesystem::relative(images.path(i), folder.file("cat")));
    }
  }
  EXPECT_THAT(cats, ElementsAre("a.png", "b.JPG", "b/10.png", "b/2.png", "b-c/1.png"));
  std::filesystem::create_symlink("../b", folder.file("cat/b/again"));
  EXPECT_THAT(data_error([&] { ImageFolder(folder.path()); }),
              HasSubstr("/cat/b/again: is a link to a folder above it"));
}

TEST(ImageFolder, NamesAnImageThatOnlyPythonReads) {
  const WrittenByPython folder("images");
  for (const char* name : {"1.webp", "1.BMP", "1.tiff", "1.pgm"}) {
    const std::string path = folder.write(std::string("cat/") + name, {0});
    EXPECT_THAT(data_error([&] { ImageFolder(folder.path()); }),
                HasSubstr(path + ": is neither JPEG nor PNG"));
    std::filesystem::remove(path);
  }
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
  EXPECT_THAT(error_of([&] { read_image(folder.file("wide.png"), 2); }),
              HasSubstr("2 channels, expected 1 or 3"));
}

/// Writes a JPEG image whose components have these sampling factors, such as "41 11 11".
void write_jpeg(const std::string& path, const std::string& sampling, J_COLOR_SPACE from,
                J_COLOR_SPACE to) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr) << path;
  jpeg_stdio_dest(&codec, file);
  codec.image_width = 61;
  codec.image_height = 47;
  codec.in_color_space = from;
  codec.input_components = from == JCS_CMYK ? 4 : 3;
  jpeg_set_defaults(&codec);
  jpeg_set_colorspace(&codec, to);
  for (int c = 0; c < codec.num_components; ++c) {
    codec.comp_info[c].h_samp_factor = sampling[static_cast<size_t>(3 * c)] - '0';
    codec.comp_info[c].v_samp_factor = sampling[static_cast<size_t>(3 * c + 1)] - '0';
  }
  jpeg_start_compress(&codec, TRUE);
  std::vector<JSAMPLE> row(codec.image_width * static_cast<size_t>(codec.input_components));
  while (codec.next_scanline < codec.image_height) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<JSAMPLE>(40 * (i % static_cast<size_t>(codec.input_components)) + i / 4 +
                                    codec.next_scanline);
    }
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&codec, &rows, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  std::fclose(file);
}

void expect_the_pixels_of_pillow(const TemporaryFolder& folder) {
  written_by_python("pillow", folder.path());
  int images = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string path = entry.path().string();
    if (entry.path().extension() == ".jpg") {
      ++images;
      EXPECT_LE(largest_difference(read_image(path), NpyArray(path + ".npy").tensor()), 3) << path;
    }
  }
  EXPECT_GE(images, 6);
}

TEST(JpegImage, OfEverySamplingHasThePixelsOfPillow) {
  const TemporaryFolder folder;
  for (const char* sampling : {"11 11 11", "21 11 11", "22 11 11", "41 11 11", "42 11 11",
                               "12 11 11", "14 11 11", "31 11 11", "22 21 11", "11 22 22"}) {
    write_jpeg(folder.file(std::string(sampling) + ".jpg"), sampling, JCS_RGB, JCS_YCbCr);
  }
  write_jpeg(folder.file("rgb.jpg"), "11 11 11", JCS_RGB, JCS_RGB);
  write_jpeg(folder.file("cmyk.jpg"), "11 11 11 11", JCS_CMYK, JCS_CMYK);
  write_jpeg(folder.file("ycck.jpg"), "22 11 11 22", JCS_CMYK, JCS_YCCK);
  expect_the_pixels_of_pillow(folder);
}

TEST(JpegImage, OfWhichLibjpegOnlyWarnsHasThePixelsOfPillow) {
  const WrittenByPython folder("images");
  const TemporaryFolder odd;
  std::filesystem::copy(folder.file(".odd"), odd.path());
  expect_the_pixels_of_pillow(odd);
}

TEST(JpegImage, WithoutItsEndIsDamaged) {
  const WrittenByPython folder("images");
  const std::string path = folder.file(".odd/plain.jpg");
  const auto size = std::filesystem::file_size(path);
  std::ifstream file(path, std::ios::binary);
  const std::vector<unsigned char> whole{std::istreambuf_iterator<char>(file), {}};
  for (const auto cut : {size / 2, size - 40, size - 2}) {
    std::filesystem::resize_file(path, cut);
    EXPECT_THAT(data_error([&] { read_image(path); }), HasSubstr("Premature end of JPEG file"));
  }
  std::vector<unsigned char> closed(whole.begin(), whole.begin() + static_cast<int64_t>(size / 2));
  closed.insert(closed.end(), {0xff, 0xd9});
  const std::string short_data = folder.write("short.jpg", closed);
  EXPECT_THAT(data_error([&] { read_image(short_data); }),
              HasSubstr("premature end of data segment"));
}

TEST(ImageFile, OfAnotherFormatIsNamedAsWhatItIs) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& begin) {
    const std::string bytes = begin + std::string(60, '\0');
    return data_error([&] { decode_image(bytes, "x"); });
  };
  EXPECT_THAT(refusal("GIF89a"), HasSubstr("this is a file of GIF; convert it to PNG"));
  EXPECT_THAT(refusal("RIFF0000WEBPVP8 "), HasSubstr("this is a file of WebP"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"),
              AllOf(HasSubstr("Git LFS"), HasSubstr("git lfs pull")));
  EXPECT_THAT(refusal("text"), EndsWith("x, byte 0: is neither a JPEG nor a PNG image"));
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
