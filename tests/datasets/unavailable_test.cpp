// The readers of a build without libjpeg-turbo, libpng and libarchive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/inputs/image_file.h>
#include <lockstep/inputs/tar_shards.h>

#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

template <typename Body>
std::string environment_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

TEST(WithoutALibrary, ReadersNameThePackageToInstall) {
  const TemporaryFolder folder;
  const std::string jpeg = folder.write("a.jpg", {0xff, 0xd8, 0xff, 0xe0});
  EXPECT_THAT(environment_error([&] { read_image(jpeg); }), HasSubstr("libjpeg-dev"));
  const std::string png = folder.write("a.png", {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'});
  EXPECT_THAT(environment_error([&] { read_image(png); }), HasSubstr("libpng-dev"));
  const std::string tar = folder.write("a.tar", {0});
  EXPECT_THAT(environment_error([&] { TarShards({tar}); }), HasSubstr("libarchive-dev"));
}

}  // namespace
}  // namespace lockstep
