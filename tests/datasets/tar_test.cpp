#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/tar_shards.h>

#include <filesystem>
#include <fstream>

#include "damaged.h"
#include "runtime/data_error.h"
#include "test_names.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

std::string counting(int times) {
  std::string bytes;
  for (int i = 0; i < 256 * times; ++i) {
    bytes.push_back(static_cast<char>(i));
  }
  return bytes;
}

TEST(TarShards, FilesOfOneKeyAreASampleInAnyOrderOfReading) {
  const WrittenByPython folder("tars");
  for (const char* name : {"gnu.tar", "pax.tar"}) {
    const TarShards shards({folder.file(name), folder.file("gnu.tar")});
    ASSERT_EQ(shards.size(), 8U) << name;
    for (const size_t first : {4U, 0U}) {
      const TarSample two = shards.get(first + 1);
      EXPECT_EQ(two.key, "train/0002");
      EXPECT_EQ(two.files.size(), 2U);
      EXPECT_EQ(two.at("seg.png"), "mask");
      EXPECT_EQ(two.at("cls"), "");
      const TarSample one = shards.get(first);
      EXPECT_EQ(one.key, "train/0001");
      EXPECT_EQ(one.at("jpg"), counting(5));
      EXPECT_EQ(one.at("cls"), "7");
      const TarSample deep = shards.get(first + 2);
      EXPECT_EQ(deep.key, std::string(90, 'd') + "/" + std::string(120, 'e') + "/0003") << name;
      EXPECT_EQ(deep.at("txt").size(), 4000U);
      EXPECT_EQ(deep.at("txt").substr(3990), "epdeepdeep") << name;
      const TarSample last = shards.get(first + 3);
      EXPECT_EQ(last.key, "\u00fcber/4") << name;
      EXPECT_EQ(last.at("v1.txt"), "\u00e4");
    }
  }
}

TEST(TarShards, NameWhatIsMissingFromASample) {
  const WrittenByPython folder("tars");
  EXPECT_THAT(data_error([&] { TarShards({folder.file("gnu.tar")}).get(0).at("png"); }),
              HasSubstr("sample train/0001: has no file .png, it has cls, jpg"));
}

TEST(TarShards, RefuseWhatIsNoPlainTar) {
  const WrittenByPython folder("tars");
  const auto message = [&](const char* name) {
    return data_error([&] { TarShards({folder.file(name)}); });
  };
  EXPECT_THAT(message("packed.tar.gz"),
              HasSubstr("this is a file of gzip, no tar file; unpack it first"));
  folder.write("a.npy.tar", {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                             0,    0,   0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(message("a.npy.tar"), HasSubstr("this is a file of numpy.save (.npy), no tar file"));
  EXPECT_THAT(message("twice.tar"), HasSubstr("the file 0001.bin is there twice"));
  EXPECT_THAT(message("nodot.tar"), HasSubstr("a.b/README has no dot in its name"));
  EXPECT_THAT(message("none.tar"), HasSubstr("has no file, expected samples"));
  EXPECT_THAT(message("no.tar"), HasSubstr("cannot be opened"));
  EXPECT_THAT(data_error([] { TarShards({}); }), HasSubstr("no file was given"));
}

TEST(TarShards, RefuseAFileThatIsCut) {
  const WrittenByPython folder("tars");
  std::filesystem::resize_file(folder.file("gnu.tar"), 512 + 512 + 1000);
  EXPECT_THAT(data_error([&] { TarShards({folder.file("gnu.tar")}); }),
              HasSubstr("the tar file ends in the middle of train/0001.jpg"));
}

TEST(TarShards, RefuseAFileThatIsCutBetweenTwoFiles) {
  const WrittenByPython folder("tars");
  const std::string path = folder.file("gnu.tar");
  std::filesystem::resize_file(path, 512 + 512 + 1536);  // train/ and train/0001.jpg
  EXPECT_THAT(data_error([&] { TarShards({path}); }),
              AllOf(HasSubstr(path), HasSubstr("byte 2560: the tar file has no end")));
  std::filesystem::resize_file(path, 512 + 512 + 1536 + 512);  // and a block of zeros
  EXPECT_EQ(TarShards({path}).size(), 1U);
}

TEST(TarShards, RefuseTarFilesThatWereJoined) {
  const WrittenByPython folder("tars");
  const std::string path = folder.file("gnu.tar");
  std::ifstream second(folder.file("pax.tar"), std::ios::binary);
  std::ofstream(path, std::ios::binary | std::ios::app) << second.rdbuf();
  EXPECT_THAT(data_error([&] { TarShards({path}); }),
              AllOf(HasSubstr(path), HasSubstr("byte 20480: there is more after the end")));
}

TEST(TarShards, SurviveDamage) {
  const WrittenByPython folder("tars");
  for (const char* name : {"gnu.tar", "pax.tar"}) {
    testing::expect_all_damage_is_refused(folder.file(name), 300, [](const std::string& path) {
      const TarShards shards({path});
      for (size_t i = 0; i < shards.size(); ++i) {
        shards.get(i);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
