#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exit_code.h>

#include <cstdio>
#include <string>

#include "finished.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kEnvironment = static_cast<int>(ExitCode::environment);

/// A program that is linked to no MPI library, with these variables and no launcher's but them.
Finished probe(const std::string& variables, const std::string& program = WORLD_PROBE) {
  return shell(
      "env -u PMI_SIZE -u PMI_RANK -u PMIX_RANK -u OMPI_COMM_WORLD_SIZE -u LOCKSTEP_MPI "
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " +
      variables + " timeout 60 " + program);
}

/// Two ranks that MPICH's mpiexec starts.
Finished by_mpich(const std::string& variables = "") {
  return probe(variables, MPICH_MPIEXEC " -n 2 " WORLD_PROBE);
}

bool mpich_is_here() {
  return std::string(MPICH_MPIEXEC) != "" && dlopen("libmpich.so.12", RTLD_LAZY | RTLD_LOCAL);
}

TEST(MpiChoice, AProgramThatIsAloneNeedsNoMpiLibrary) {
  const Finished run = probe("LOCKSTEP_MPI=/no/libmpi.so.40");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(run.output, "rank 0 of 1, MPI ''\n");
}

TEST(MpiChoice, ARankWithoutALibrarySaysWhatWasTried) {
  const Finished run = probe("OMPI_COMM_WORLD_SIZE=2 LOCKSTEP_MPI=/no/libmpi.so.40");
  EXPECT_EQ(run.code, kEnvironment);
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("the dynamic linker finds no MPI library"),
                    HasSubstr("/no/libmpi.so.40: cannot open"), HasSubstr("in LOCKSTEP_MPI")));
}

TEST(MpiChoice, AFileThatIsNoMpiLibraryIsNamed) {
  const Finished run = probe("OMPI_COMM_WORLD_SIZE=2 LOCKSTEP_MPI=libm.so.6");
  EXPECT_EQ(run.code, kEnvironment);
  EXPECT_THAT(run.output, HasSubstr("libm.so.6 is no MPI library"));
}

TEST(MpiChoice, ALibraryOfAnUnknownBinaryInterfaceIsNamed) {
  const Finished run = probe("OMPI_COMM_WORLD_SIZE=2 LOCKSTEP_MPI=" OTHER_MPI);
  EXPECT_EQ(run.code, kEnvironment);
  EXPECT_THAT(run.output,
              AllOf(HasSubstr(OTHER_MPI), HasSubstr("neither the binary interface of Open MPI")));
}

TEST(MpiChoice, OneBuildRunsUnderOpenMpiAndUnderMpich) {
  const Finished open_mpi = probe("", MPIEXEC " -n 2 " WORLD_PROBE);
  EXPECT_EQ(open_mpi.code, 0) << open_mpi.output;
  EXPECT_THAT(open_mpi.output, AllOf(HasSubstr("rank 0 of 2, MPI '"), HasSubstr("rank 1 of 2")));
  if (!mpich_is_here()) {
    GTEST_SKIP() << "there is no MPICH beside the other MPI";
  }
  const Finished mpich = by_mpich();
  EXPECT_EQ(mpich.code, 0) << mpich.output;
  EXPECT_THAT(mpich.output, AllOf(HasSubstr("rank 0 of 2, MPI 'MPICH"), HasSubstr("rank 1 of 2")));
}

TEST(MpiChoice, TheLibraryOfAnotherLauncherIsNamedInOneSentence) {
  if (!mpich_is_here()) {
    GTEST_SKIP() << "there is no MPICH beside the other MPI";
  }
  const Finished run = by_mpich("LOCKSTEP_MPI=libmpi.so.40");
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.output, HasSubstr("the launcher started 2 ranks (PMI_SIZE), but MPI sees a world "
                                    "of 1. The library of this process is Open MPI v"));
  EXPECT_THAT(run.output, HasSubstr("name the launcher's library in LOCKSTEP_MPI"));
}

TEST(MpiChoice, TwoLibrariesInOneProcessAreRefused) {
  if (!mpich_is_here()) {
    GTEST_SKIP() << "there is no MPICH beside the other MPI";
  }
  const std::string both = "LD_PRELOAD=libmpich.so.12:libmpi.so.40";
  const Finished alone = probe(both);
  EXPECT_EQ(alone.output, "rank 0 of 1, MPI ''\n") << "it needs none";
  const Finished run = probe("PMI_SIZE=2 " + both);
  EXPECT_EQ(run.code, kEnvironment);
  EXPECT_THAT(run.output, AllOf(HasSubstr("two MPI libraries are loaded, "), HasSubstr("libmpich"),
                                HasSubstr("libmpi.so.40")));
}

}  // namespace
}  // namespace lockstep
