#include "machine/libtorch_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace lockstep::launcher {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// Folders that look like LibTorch's, and the environment variables that name them.
class LauncherLibTorch : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "lockstep-libtorch-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string wheel(const std::string& environment, const std::string& version) {
    const auto root = folder_ / environment / "lib/python3.11/site-packages/torch";
    std::filesystem::create_directories(root / "lib");
    std::ofstream(root / "version.py")
        << "from typing import Optional\n__version__ = '" << version << "'\n";
    return root.string();
  }
  std::string zip(const std::string& name, const std::string& version) {
    std::filesystem::create_directories(folder_ / name / "lib");
    std::ofstream(folder_ / name / "build-version") << version << "\n";
    return (folder_ / name).string();
  }
  /// Lockstep's folder; `linked_root` is what its programs were linked with.
  std::string installed(const std::string& prefix, const std::string& linked_root = "") {
    std::filesystem::create_directories(folder_ / prefix / "share/lockstep");
    if (!linked_root.empty()) {
      std::ofstream(folder_ / prefix / "share/lockstep/libtorch") << linked_root << "\n";
    }
    return (folder_ / prefix).string();
  }
  std::optional<LibTorchPlace> find(const std::string& prefix) const {
    return find_libtorch({"2.11.0", prefix,
                          [this](const char* name) -> const char* {
                            const auto found = variables_.find(name);
                            return found == variables_.end() ? nullptr : found->second.c_str();
                          },
                          [this] { return python_; }});
  }

  std::filesystem::path folder_;
  std::map<std::string, std::string> variables_;
  std::string python_;
};

TEST_F(LauncherLibTorch, ThatIsStillWhereItWasLinkedNeedsNoSearchPath) {
  variables_["LibTorch_ROOT"] = zip("other", "2.11.0");
  const std::string root = wheel("env", "2.11.0+cu130");
  const auto place = find(installed("prefix", root));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->root, root);
  EXPECT_THAT(place->library_folders, IsEmpty());
}

TEST_F(LauncherLibTorch, BesideAPackageInSitePackagesNeedsNoSearchPath) {
  wheel("env", "2.11.0+cu130");
  variables_["LibTorch_ROOT"] = zip("other", "2.11.0");
  const auto place = find(installed("env/lib/python3.11/site-packages/lockstep"));
  ASSERT_TRUE(place);
  EXPECT_THAT(place->library_folders, IsEmpty());
}

TEST_F(LauncherLibTorch, ThatHasMovedIsFoundByItsVariable) {
  variables_["LibTorch_ROOT"] = zip("moved", "2.11.0+cpu");
  variables_["VIRTUAL_ENV"] = folder_ / "env";
  wheel("env", "2.11.0");
  const auto place = find(installed("prefix", folder_ / "gone"));
  ASSERT_TRUE(place);
  EXPECT_THAT(place->library_folders, UnorderedElementsAre(folder_ / "moved/lib"));
}

TEST_F(LauncherLibTorch, OfThePythonEnvironmentIsFoundWithItsCudaWheels) {
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    variables_ = {{variable, folder_ / "env"}};
    const std::string root = wheel("env", "2.11.0+cu130");
    const auto packages = std::filesystem::path(root).parent_path();
    std::filesystem::create_directories(packages / "nvidia/cu13/lib");
    const auto place = find(installed("prefix"));
    ASSERT_TRUE(place) << variable;
    EXPECT_EQ(place->root, root);
    EXPECT_THAT(place->library_folders,
                UnorderedElementsAre(root + "/lib", packages / "nvidia/cu13/lib"));
  }
}

TEST_F(LauncherLibTorch, OfThePythonInThePathIsFoundLast) {
  python_ = wheel("python", "2.11.0");
  ASSERT_TRUE(find(installed("prefix")));
  EXPECT_EQ(find(installed("prefix"))->root, python_);
  variables_["LibTorch_ROOT"] = zip("named", "2.11.0");
  EXPECT_EQ(find(installed("prefix"))->root, folder_ / "named");
}

TEST_F(LauncherLibTorch, OfAnotherVersionIsPassedOver) {
  python_ = wheel("python", "2.12.0");
  variables_["LibTorch_ROOT"] = zip("older", "2.10.0+cpu");
  EXPECT_FALSE(find(installed("prefix", wheel("linked", "2.9.1"))));
  variables_["CONDA_PREFIX"] = folder_ / "env";
  const std::string root = wheel("env", "2.11.0");
  ASSERT_TRUE(find(installed("prefix")));
  EXPECT_EQ(find(installed("prefix"))->root, root);
}

}  // namespace
}  // namespace lockstep::launcher
