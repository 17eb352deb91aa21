#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/mpi_files.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

/// No launcher, and no mpirun in PATH.
class MpiFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"LOCKSTEP_MPI", "LOCKSTEP_MPIRUN", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                             "PMI_RANK", "MV2_COMM_WORLD_SIZE", "PALS_RANKID", "PMIX_RANK"}) {
      unsetenv(name);
    }
    folder_ = ::testing::TempDir() + "/mpi-files-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("PATH", folder_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(MpiFiles, WithoutALauncherOpenMpiComesBeforeMpich) {
  EXPECT_THAT(detail::mpi_files(),
              ElementsAre("libmpi.so.40", "libmpi_ibm.so.3", "libmpi.so.12", "libmpich.so.12"));
  setenv("PMIX_RANK", "0", 1);
  EXPECT_THAT(detail::mpi_files(),
              ElementsAre("libmpi.so.40", "libmpi_ibm.so.3", "libmpi.so.12", "libmpich.so.12"));
}

TEST_F(MpiFiles, RanksOfOpenMpisLauncherTakeNoOtherLibrary) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("PMI_RANK", "0", 1);
  EXPECT_THAT(detail::mpi_files(), ElementsAre("libmpi.so.40", "libmpi_ibm.so.3"));
}

TEST_F(MpiFiles, RanksOfALauncherOfPmiTakeMpichFirst) {
  for (const char* variable : {"PMI_SIZE", "PMI_RANK", "MV2_COMM_WORLD_SIZE", "PALS_RANKID"}) {
    setenv(variable, "1", 1);
    EXPECT_THAT(detail::mpi_files(),
                ElementsAre("libmpi.so.12", "libmpich.so.12", "libmpi.so.40", "libmpi_ibm.so.3"))
        << variable;
    unsetenv(variable);
  }
}

TEST_F(MpiFiles, TheUsersChoiceIsTheOnlyOne) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("LOCKSTEP_MPI", "/opt/mpi/lib/libmpi.so.12", 1);
  EXPECT_THAT(detail::mpi_files(), ElementsAre("/opt/mpi/lib/libmpi.so.12"));
  setenv("LOCKSTEP_MPI", "", 1);
  EXPECT_THAT(detail::mpi_files(), ElementsAre("libmpi.so.40", "libmpi_ibm.so.3"));
}

TEST_F(MpiFiles, TheLibraryBesideMpirunComesFirstLinksFollowed) {
  const std::string tree = folder_ + "/tree";
  for (const char* part : {"/bin", "/lib64", "/links"}) {
    std::filesystem::create_directories(tree + part);
  }
  std::ofstream(tree + "/bin/orterun") << "#!/bin/sh\n";
  std::filesystem::create_symlink(tree + "/bin/orterun", tree + "/links/mpirun");
  const std::string library = std::filesystem::canonical(tree).string() + "/lib64/libmpi.so.40";
  std::ofstream(library) << "\n";
  setenv("PATH", (folder_ + "::" + tree + "/links").c_str(), 1);
  EXPECT_THAT(detail::mpi_files(), ElementsAre(library, "libmpi.so.40", "libmpi_ibm.so.3",
                                               "libmpi.so.12", "libmpich.so.12"));
}

TEST_F(MpiFiles, TheKindOfTheLauncherComesBeforeTheOneBesideMpirun) {
  const std::string tree = folder_ + "/tree";
  std::filesystem::create_directories(tree + "/bin");
  std::filesystem::create_directories(tree + "/lib");
  std::ofstream(tree + "/bin/mpirun") << "#!/bin/sh\n";
  const std::string library = std::filesystem::canonical(tree).string() + "/lib/libmpi.so.40";
  std::ofstream(library) << "\n";
  setenv("PATH", (tree + "/bin").c_str(), 1);
  setenv("PMI_RANK", "0", 1);
  EXPECT_THAT(detail::mpi_files(), ElementsAre("libmpi.so.12", "libmpich.so.12", library,
                                               "libmpi.so.40", "libmpi_ibm.so.3"));
}

TEST_F(MpiFiles, TheMpirunThatLockstepRunWasToldComesBeforeThatOfPath) {
  const std::string folder = std::filesystem::canonical(folder_).string();
  for (const char* part : {"/told/bin", "/told/lib", "/path/bin", "/path/lib"}) {
    std::filesystem::create_directories(folder + part);
  }
  for (const char* file : {"/told/bin/my-mpirun", "/told/lib/libmpi.so.40", "/path/bin/mpirun",
                           "/path/lib/libmpi.so.40"}) {
    std::ofstream(folder + file) << "\n";
  }
  setenv("PATH", (folder + "/path/bin").c_str(), 1);
  setenv("LOCKSTEP_MPIRUN", (folder + "/told/bin/my-mpirun").c_str(), 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_THAT(detail::mpi_files(),
              ElementsAre(folder + "/told/lib/libmpi.so.40", folder + "/path/lib/libmpi.so.40",
                          "libmpi.so.40", "libmpi_ibm.so.3"));
}

}  // namespace
}  // namespace lockstep
