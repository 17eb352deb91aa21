#include <gtest/gtest.h>
#include <lockstep/collectives/exit_code.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "finished.h"

namespace lockstep {
namespace {

/// The probe without any launcher, whatever started this test.
Finished alone(const std::string& environment, const std::string& mode = "size") {
  return shell(
      "env -u OMPI_COMM_WORLD_SIZE -u MV2_COMM_WORLD_SIZE -u FLUX_JOB_SIZE -u JSM_NAMESPACE_SIZE "
      "-u PALS_RANKID -u PMI_SIZE -u PMI_RANK -u PMIX_RANK "
      "-u SLURM_NTASKS -u SLURM_STEP_NUM_TASKS -u SLURM_PROCID OMPI_ALLOW_RUN_AS_ROOT=1 "
      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " +
      environment + " timeout 60 " PROBE_PROGRAM " " + mode);
}

Finished by_mpi(int ranks, const std::string& mode) {
  return shell("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 " MPIEXEC
               " -n " +
               std::to_string(ranks) + " " PROBE_PROGRAM " " + mode);
}

std::set<std::string> shared_memory_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("lockstep-") == 0) {
      names.insert(entry.path().filename());
    }
  }
  return names;
}

bool has(const Finished& run, const std::string& words) {
  return run.output.find(words) != std::string::npos;
}

TEST(MpiSession, WithoutALauncherTheWorldIsSoloAndMpiStaysDown) {
  const Finished run = alone("");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.output, "rank 0 of 1 by solo, MPI ''\n");
}

TEST(MpiSession, UnderALauncherItIsTheWorld) {
  const Finished run = by_mpi(3, "size");
  EXPECT_EQ(run.code, 0) << run.output;
  for (const char* rank : {"rank 0 of 3 by mpi", "rank 1 of 3 by mpi", "rank 2 of 3 by mpi"}) {
    EXPECT_TRUE(has(run, rank)) << run.output;
  }
}

TEST(MpiSession, ARankThatDoesNotStartIsNamedByTheOthers) {
  std::string folder = ::testing::TempDir() + "/roll-call-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  // Rank 2 starts once it was named. Before that the others may be late, too.
  const Finished run = shell(
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LOCKSTEP_REPORT_AFTER=1 "
      "timeout 100 " MPIEXEC
      " -n 3 sh -c 'if [ \"$OMPI_COMM_WORLD_RANK\" = 2 ]; then while [ ! -e " +
      folder +
      "/named ]; do sleep 0.05; done; fi; exec " PROBE_PROGRAM
      " size' 2>&1 | while read -r line; do echo \"$line\"; case $line in *'rank 2 has not arrived "
      "(ranks 0-1 have)'*) : >" +
      folder + "/named ;; esac; done");
  EXPECT_TRUE(has(run, "lockstep: rank 0 has waited ")) << run.output;
  EXPECT_TRUE(has(run, " s for the start of all ranks: rank 2 has not arrived (ranks 0-1 have)"))
      << run.output;
  EXPECT_TRUE(has(run, "rank 2 of 3 by mpi")) << run.output;
  std::filesystem::remove_all(folder);
}

TEST(MpiSession, AWorldOfOneUnderALauncherIsSolo) {
  const Finished run = by_mpi(1, "size");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(has(run, "rank 0 of 1 by solo")) << run.output;
}

TEST(MpiSession, RefusesAWorldThatIsNotWhatTheLauncherStarted) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                               "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE"}) {
    const Finished run = alone(std::string(variable) + "=4");
    EXPECT_EQ(run.code, static_cast<int>(ExitCode::environment)) << run.output;
    EXPECT_TRUE(has(run, "the launcher started 4 ranks") && has(run, variable) &&
                has(run, "MPI sees a world of 1"))
        << run.output;
  }
}

TEST(MpiSession, RefusesTasksThatSrunStartedWithoutPmix) {
  const Finished run = alone("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1");
  EXPECT_EQ(run.code, static_cast<int>(ExitCode::environment)) << run.output;
  EXPECT_TRUE(has(run, "rank 1: srun started 2 tasks") && has(run, "srun --mpi=pmix"))
      << run.output;
}

TEST(MpiSession, TasksThatCraysLauncherStartedAreNotRefused) {
  const Finished run = alone("PALS_RANKID=1 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(has(run, "rank 0 of 1")) << run.output;
}

TEST(MpiSession, RefusesToBeTheOneRankOfABatchScriptWithSeveralTasks) {
  const Finished run = alone("SLURM_NTASKS=4 SLURM_PROCID=0");
  EXPECT_EQ(run.code, static_cast<int>(ExitCode::environment)) << run.output;
  EXPECT_TRUE(has(run, "this Slurm job has 4 tasks") && has(run, "srun --mpi=pmix PROGRAM"))
      << run.output;
}

TEST(MpiSession, IsTheOneRankOfLockstepRunInAJobOfSeveralTasks) {
  for (const char* task : {"", " SLURM_PROCID=0"}) {
    const std::string job = std::string("SLURM_JOB_ID=17 SLURM_NTASKS=4") + task;
    const Finished run = alone(job, "launched");
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_EQ(run.output, "rank 0 of 1 by solo, MPI ''\n");
    // A job that such a rank has submitted inherits the variable, but not the launcher.
    const Finished inherited = alone("LOCKSTEP_LIFE_SIGNS=3:1 " + job);
    EXPECT_EQ(inherited.code, static_cast<int>(ExitCode::environment)) << inherited.output;
    EXPECT_TRUE(has(inherited, "lockstep run -n 1 PROGRAM")) << inherited.output;
  }
}

TEST(MpiSession, OneTaskOfSrunNeedsNoMpi) {
  for (const char* tasks : {"SLURM_NTASKS=1", "SLURM_NTASKS=4", ""}) {
    const Finished run = alone(std::string(tasks) + " SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0");
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_TRUE(has(run, "by solo")) << run.output;
  }
}

TEST(MpiSession, ASecondSessionIsRefused) {
  const Finished run = alone("", "twice");
  EXPECT_EQ(run.code, static_cast<int>(ExitCode::usage)) << run.output;
  EXPECT_TRUE(has(run, "already has one")) << run.output;
}

TEST(MpiSession, AnotherSessionAfterMpiWasFinalisedIsRefusedOnEveryRank) {
  for (const int ranks : {1, 2}) {
    const Finished run = by_mpi(ranks, "again");
    EXPECT_EQ(run.code, static_cast<int>(ExitCode::usage)) << run.output;
    EXPECT_TRUE(has(run, "MPI was finalised in this process")) << run.output;
  }
  EXPECT_EQ(alone("", "again").code, 0);
}

TEST(MpiSession, AnotherSessionAfterAFailedCollectiveIsRefused) {
  const Finished run = by_mpi(2, "failed");
  EXPECT_NE(run.code, 0);
  EXPECT_NE(run.code, 124) << "the job hung: " << run.output;
  EXPECT_TRUE(has(run, "start all ranks again from the last snapshot")) << run.output;
}

TEST(MpiSession, AGuestThatLeavesLeavesMpiToTheProgram) {
  for (const bool fails : {false, true}) {
    const Finished run = by_mpi(2, fails ? "guest-fails" : "guest-leaves");
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_EQ(has(run, "gathered bytes"), !fails) << run.output;
    EXPECT_EQ(has(run, "MPI_Allgather failed"), fails) << run.output;
    EXPECT_TRUE(has(run, "signs for the launcher: none")) << run.output;
    EXPECT_TRUE(has(run, "2 ranks go on with MPI up, its errors are fatal as before"))
        << run.output;
  }
}

TEST(MpiThreadLevel, OfAProgramThatStartsMpiMustBeSerializedOrMultiple) {
  for (const char* level : {"level-serialized", "level-multiple"}) {
    const Finished run = by_mpi(2, level);
    EXPECT_EQ(run.code, 0) << level << run.output;
    EXPECT_TRUE(has(run, "rank 1 of 2 by mpi")) << run.output;
  }
  for (const char* level : {"SINGLE", "FUNNELED"}) {
    std::string mode = std::string("level-") + level;
    std::transform(mode.begin(), mode.end(), mode.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const Finished run = by_mpi(2, mode);
    EXPECT_EQ(run.code, static_cast<int>(ExitCode::environment)) << run.output;
    EXPECT_TRUE(has(run, std::string("MPI's thread level is MPI_THREAD_") + level) &&
                has(run, "lockstep needs MPI_THREAD_SERIALIZED") &&
                has(run, "start MPI with MPI_Init_thread"))
        << run.output;
  }
}

TEST(MpiThreadLevel, ThatIsTooLowOnOneRankIsRefusedOnEveryRank) {
  const Finished run = by_mpi(2, "level-mixed");
  EXPECT_EQ(run.code, static_cast<int>(ExitCode::environment)) << run.output;
  EXPECT_TRUE(has(run,
                  "rank 0: MPI's thread level is MPI_THREAD_MULTIPLE here, but too low on "
                  "another rank") ||
              has(run, "rank 1: MPI's thread level is MPI_THREAD_FUNNELED"))
      << run.output;
}

TEST(MpiSession, ACommunicatorMayOutliveTheSession) {
  const Finished run = by_mpi(2, "outlive");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(has(run, "sum 2")) << run.output;
}

TEST(MpiSession, AKilledRankEndsTheJobAndLeavesNothingBehind) {
  const std::set<std::string> before = shared_memory_names();
  const Finished run = by_mpi(3, "kill");
  EXPECT_NE(run.code, 0);
  EXPECT_NE(run.code, 124) << "the job hung: " << run.output;
  EXPECT_LT(run.time.count(), 30.0);
  EXPECT_EQ(shared_memory_names(), before);
}

TEST(MpiSession, AThrowingRankEndsTheJob) {
  const Finished run = by_mpi(3, "throw");
  EXPECT_NE(run.code, 0);
  EXPECT_NE(run.code, 124) << "the job hung: " << run.output;
  EXPECT_TRUE(has(run, "rank 1 has had enough")) << run.output;
  EXPECT_LT(run.time.count(), 30.0);
}

}  // namespace
}  // namespace lockstep
