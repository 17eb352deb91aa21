// A program that links LibTorch uses its own compiler's std::filesystem.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

TEST(RemoveAll, WorksInProgramsThatLinkLibTorch) {
  ASSERT_EQ(at::ones({2}).sum().item<float>(), 2.0F);
  std::string root = fs::temp_directory_path() / "lockstep_remove_all_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  fs::create_directories(fs::path(root) / "a" / "b");
  std::ofstream(fs::path(root) / "a" / "file") << 1;
  std::ofstream(fs::path(root) / "a" / "b" / "file") << 1;
  int entries = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    entries += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(entries, 4);
  EXPECT_EQ(fs::remove_all(root), 5U);
  EXPECT_FALSE(fs::exists(root));
}

}  // namespace
