#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "launch.h"
#include "made_driver.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

TEST(LauncherStart, VersionAndHelpSucceed) {
  const Launched version = launch({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out,
              MatchesRegex("lockstep " LOCKSTEP_VERSION
                           "\ncommit +([0-9a-f]{12}( and changes)?|unknown)\nLibTorch +[0-9.]+ for "
                           "(CPUs|CUDA [0-9.]+)\nNCCL +(none|[0-9.]+)\n"
                           "MPI +/.*libmpi(ch)?\\.so\\.(40|12)\n"));
  const Launched help = launch({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("Start a program on many ranks"));
  const Launched run_help = launch({"run", "--help"});
  EXPECT_EQ(run_help.code, 0);
  EXPECT_THAT(run_help.out,
              AllOf(HasSubstr("--log-dir"), HasSubstr("--dry-run"), HasSubstr("all attempts")));
}

TEST(LauncherStart, WrongUseEndsWithCode2AndSaysWhatWasWrong) {
  EXPECT_EQ(launch({}).code, 2);
  const Launched option = launch({"run", "--bogus", "--", "/bin/true"});
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.error, HasSubstr("--bogus"));
  const Launched command = launch({"ruN", "--", "/bin/true"});
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.error, HasSubstr("there is no command ruN; did you mean run?"));
  EXPECT_THAT(launch({"inspct", "runs"}).error, HasSubstr("inspct; did you mean inspect?"));
  EXPECT_THAT(launch({"train", "x"}).error,
              AllOf(HasSubstr("no command train; see lockstep --help"), Not(HasSubstr("mean"))));
  EXPECT_THAT(launch({"run", "--max-restart=2", "--", "/bin/true"}).error,
              HasSubstr("no option --max-restart=2; did you mean --max-restarts?"));
  const Launched bind = launch({"run", "--bind", "socket", "--", "/bin/true"});
  EXPECT_EQ(bind.code, 2);
  EXPECT_THAT(bind.error, HasSubstr("--bind"));
}

TEST(LauncherStart, AWrongOptionIsNamedAsItWasTypedInEveryCommand) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> lines{
      {{"run", "-n", "0", "--", "/bin/true"}, "run: -n: "},
      {{"run", "--ranks", "0", "--", "/bin/true"}, "run: --ranks: "},
      {{"run", "-n0", "--", "/bin/true"}, "run: -n: "},
      {{"doctor", "-n", "0"}, "doctor: -n: "},
      {{"doctor", "--jsn", "x"}, "doctor has no option --jsn; did you mean --json?"},
      {{"predict", "-n", "2", "a"}, "predict: --network is required"},
      {{"clean", "--lst"}, "clean has no option --lst; did you mean --list?"},
      {{"clean", "all"}, "clean takes no argument all"},
      {{"export", "--bset", "run"}, "export has no option --bset; did you mean --best?"},
      {{"export", "run"}, "export: file is required"},
      {{"inspect", "--tensor", "run"}, "inspect has no option --tensor; did you mean --tensors?"},
      {{"diff", "a"}, "diff: run-b is required"}};
  for (const auto& [words, text] : lines) {
    const Launched refused = launch(words);
    EXPECT_EQ(refused.code, 2) << text;
    EXPECT_THAT(refused.error, AllOf(StartsWith("lockstep: " + text),
                                     EndsWith("; see lockstep " + words[0] + " --help\n")));
  }
}

TEST(LauncherStart, NoProgramEndsWithCode2AndShowsTheForm) {
  for (const auto& arguments : {std::vector<std::string>{"run", "-n", "2"}, {"run", "--"}}) {
    const Launched result = launch(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.error, HasSubstr("lockstep run [options] -- program"));
  }
}

TEST(LauncherStart, TheProgramMayStandWithoutDashesAndKeepsItsOwn) {
  for (const auto& arguments :
       {std::vector<std::string>{"run", "-n", "2", "--dry-run", "/bin/echo", "-n", "a", "--b"},
        {"run", "-n", "2", "--dry-run", "--", "/bin/echo", "-n", "a", "--b"}}) {
    EXPECT_THAT(launch(arguments).out, HasSubstr("exec-rank -- /bin/echo -n a --b\n"));
  }
  EXPECT_EQ(launch({"run", "-n", "1", "--dry-run", "/bin/grep", "--", "-x", "--", "y"}).out,
            "/bin/grep -- -x -- y\n");
}

TEST(LauncherStart, AMissingProgramEndsWithCode2) {
  const Launched result = launch({"run", "-n", "2", "--", "/no/such/program"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr("cannot run /no/such/program"));
  const Launched folder = launch({"run", "-n", "2", "--", "/tmp"});
  EXPECT_EQ(folder.code, 2);
}

TEST(LauncherStart, AProgramOfThisFolderIsNamedWithItsFolder) {
  const Folder folder;
  std::ofstream(folder.path() + "/train") << "#!/bin/sh\n";
  std::filesystem::permissions(folder.path() + "/train", std::filesystem::perms::owner_all);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const Launched result = launch({"run", "-n", "2", "--", "train"});
  std::filesystem::current_path(before);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr("write ./train"));
}

TEST(LauncherStart, AMissingMpirunEndsWithCode3AndSaysWhatToInstall) {
  const Launched result = launch({"run", "-n", "2", "--mpirun", "no-mpirun", "--", "/bin/true"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.error, AllOf(HasSubstr("cannot find no-mpirun"), HasSubstr("openmpi-bin")));
}

TEST(LauncherStart, AUserWithoutAHomeIsToldToSetIt) {
  const char* home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  unsetenv("HOME");
  setenv("LD_PRELOAD", LOCKSTEP_NO_USERS, 1);
  setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  const Launched two = launch({"run", "-n", "2", "--", "/bin/true"});
  const Launched one = launch({"run", "-n", "1", "--", "/bin/true"});
  setenv("HOME", "/tmp", 1);
  const Launched set = launch({"run", "-n", "2", "--", "/bin/true"});
  unsetenv("LD_PRELOAD");
  unsetenv("ASAN_OPTIONS");
  setenv("HOME", before.c_str(), 1);
  EXPECT_EQ(two.code, 3);
  EXPECT_THAT(two.error, HasSubstr("lockstep: HOME is not set, and user"));
  EXPECT_EQ(one.code, 0) << one.error;
  EXPECT_EQ(set.code, 0) << set.error;
}

TEST(LauncherStart, AnMpirunThatIsNotOpenMpisGetsTheOptionsOfHydra) {
  const Folder folder;
  const std::string mpirun = folder.path() + "/mpirun";
  std::ofstream(mpirun) << "#!/bin/sh\necho 'HYDRA build details:'\n";
  chmod(mpirun.c_str(), 0755);
  const Launched result = launch(
      {"run", "-n", "2", "--dry-run", "--host", "a,b", "--mpirun", mpirun, "--", "/bin/true"});
  EXPECT_THAT(result.error, HasSubstr("mpirun is not Open MPI's: only -n, -f and -hosts"));
  EXPECT_THAT(result.out, HasSubstr(mpirun + " -n 2 -hosts a,b "));
}

TEST(LauncherStart, TheRanksKnowAnMpirunThatIsNamedByPath) {
  const Folder folder;
  const std::string mpirun = folder.path() + "/mpirun";
  std::ofstream(mpirun) << "#!/bin/sh\necho \"told: $LOCKSTEP_MPIRUN\"\n";
  chmod(mpirun.c_str(), 0755);
  const Launched result = launch({"run", "-n", "2", "--mpirun", mpirun, "--", "/bin/true"});
  EXPECT_THAT(result.out + result.error, HasSubstr("told: " + mpirun));
}

TEST(LauncherStart, PrefixIsTheFolderThatHasBin) {
  const Launched prefix = launch({"--prefix"});
  EXPECT_EQ(prefix.code, 0);
  const std::string command = LOCKSTEP_COMMAND;
  EXPECT_EQ(prefix.out.substr(0, prefix.out.size() - 1),
            std::filesystem::canonical(command).parent_path().parent_path());
}

TEST(LauncherStart, OneRankNeedsNoMpirun) {
  const Launched result = launch({"run", "-n", "1", "--mpirun", "no-mpirun", "--", "/bin/sh", "-c",
                                  "echo world ${OMPI_COMM_WORLD_SIZE:-none}"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "[0] world none\n");
  EXPECT_THAT(result.error, HasSubstr("without mpirun"));
}

TEST(LauncherStart, DryRunPrintsTheCommandAndRunsNothing) {
  const Folder folder;
  const Launched result = launch({"run", "-n", "2", "--dry-run", "--mpi-arg=--display-map",
                                  "--bind", "core", "--", "/bin/touch", folder.path() + "/a file"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, MatchesRegex("mpirun -n 2 .*--bind-to core --display-map .*lockstep "
                                       "exec-rank -- /bin/touch '.*/a file'\n"));
  EXPECT_NE(access((folder.path() + "/a file").c_str(), F_OK), 0);
}

TEST(LauncherStart, RanksOfOneHostListenOnNoNetwork) {
  const Launched result = launch({"run", "-n", "2", "--", LOCKSTEP_LISTENING_PROGRAM});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] sum 1, listens on no network\n"),
                                HasSubstr("[1] sum 1, listens on no network\n")));
}

TEST(LauncherStart, HowMessagesTravelIsTheUsersChoiceAndMpisOnSeveralHosts) {
  const std::vector<std::vector<std::string>> options = {
      {"--mpi-arg=--mca", "--mpi-arg=btl", "--mpi-arg=tcp,self"}, {"--host", "a:1,b:1"}};
  for (std::vector<std::string> chosen : options) {
    chosen.insert(chosen.begin(), {"run", "-n", "2", "--dry-run"});
    chosen.insert(chosen.end(), {"--", "/bin/true"});
    EXPECT_THAT(launch(chosen).out, Not(HasSubstr("vader")));
  }
  setenv("OMPI_MCA_pml", "ucx", 1);
  EXPECT_THAT(launch({"run", "-n", "2", "--dry-run", "--", "/bin/true"}).out,
              Not(HasSubstr("vader")));
  unsetenv("OMPI_MCA_pml");
}

TEST(LauncherStart, DryRunOfOneRankIsTheProgramItself) {
  EXPECT_EQ(launch({"run", "-n", "1", "--dry-run", "--", "/bin/echo", "$HOME"}).out,
            "/bin/echo '$HOME'\n");
}

TEST(LauncherStart, OversubscribeIsAddedWhereNeededAndSaid) {
  const Launched many = launch({"run", "-n", "4096", "--dry-run", "--", "/bin/true"});
  EXPECT_THAT(many.out, HasSubstr("--oversubscribe"));
  EXPECT_THAT(many.error, HasSubstr("4096 ranks on"));
  const Launched hosts =
      launch({"run", "-n", "4096", "--host", "a:4096", "--dry-run", "--", "/bin/true"});
  EXPECT_THAT(hosts.out, AllOf(HasSubstr("--host a:4096"), Not(HasSubstr("--oversubscribe"))));
}

TEST(LauncherStart, RootIsAllowedOnlyWhenTheEnvironmentDoesNot) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  EXPECT_THAT(launch({"run", "-n", "2", "--dry-run", "--", "/bin/true"}).out,
              Not(HasSubstr("--allow-run-as-root")));
  unsetenv("OMPI_ALLOW_RUN_AS_ROOT");
  unsetenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
  const Launched result = launch({"run", "-n", "2", "--dry-run", "--", "/bin/true"});
  EXPECT_EQ(result.out.find("--allow-run-as-root") != std::string::npos, geteuid() == 0);
  EXPECT_EQ(result.error.find("running as root") != std::string::npos, geteuid() == 0);
}

TEST(LauncherStart, TheDefaultNumberOfRanksIsSaid) {
  const MadeDriver driver("8");
  setenv("CUDA_VISIBLE_DEVICES", "0,1,2", 1);
  const Launched gpus = launch({"run", "--dry-run", "--", "/bin/true"});
  EXPECT_THAT(gpus.out, HasSubstr("mpirun -n 3 "));
  EXPECT_THAT(gpus.error, HasSubstr("3 ranks, one for each visible GPU"));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_THAT(launch({"run", "--dry-run", "--", "/bin/true"}).error,
              HasSubstr("one for each physical core (no GPU is visible)"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(LauncherStart, ADriverThatFailsIsNamedWithTheDefaultNumberOfRanks) {
  const MadeDriver driver("error 802");
  EXPECT_THAT(launch({"run", "--dry-run", "--", "/bin/true"}).error,
              HasSubstr("one for each physical core (no GPU is visible: NVIDIA's driver reports "
                        "error 802: system not yet initialized); start nvidia-fabricmanager"));
  const Launched counted = launch({"count-gpus"});
  EXPECT_EQ(counted.code, 0);
  EXPECT_EQ(counted.out, "0\n");
  EXPECT_THAT(counted.error, HasSubstr("error 802: system not yet initialized; start nvidia-f"));
}

TEST(LauncherStart, ScriptsGetTheNumberOfVisibleGpus) {
  const MadeDriver driver("3");
  EXPECT_EQ(launch({"count-gpus"}).out, "3\n");
}

TEST(LauncherStart, TheDefaultNumberOfRanksIsThatOfTheDevicesTheRuntimeChooses) {
  const MadeDriver driver("8");
  setenv("CUDA_VISIBLE_DEVICES", "0,1,-1,3", 1);
  EXPECT_THAT(launch({"run", "--dry-run", "--", "/bin/true"}).error,
              HasSubstr("2 ranks, one for each visible GPU"));
  setenv("LOCKSTEP_DEVICE", "cpu", 1);
  EXPECT_THAT(launch({"run", "--dry-run", "--", "/bin/true"}).error,
              HasSubstr("one for each physical core (LOCKSTEP_DEVICE=cpu)"));
  setenv("LOCKSTEP_DEVICE", "automatic", 1);
  EXPECT_THAT(launch({"run", "--dry-run", "--", "/bin/true"}).error,
              HasSubstr("2 ranks, one for each visible GPU"));
  unsetenv("LOCKSTEP_DEVICE");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(LauncherStart, RemoteRanksGetTheVariablesThatMatter) {
  const char* const forwarded[] = {"NCCL_DEBUG",
                                   "PYTORCH_ALLOC_CONF",
                                   "PYTORCH_CUDA_ALLOC_CONF",
                                   "TORCH_NCCL_AVOID_RECORD_STREAMS",
                                   "UCX_TLS",
                                   "UCC_TLS",
                                   "FI_PROVIDER",
                                   "RDMAV_FORK_SAFE",
                                   "CUBLAS_WORKSPACE_CONFIG",
                                   "CUBLASLT_WORKSPACE_SIZE",
                                   "CUDNN_LOGLEVEL_DBG",
                                   "CUDA_DEVICE_MAX_CONNECTIONS",
                                   "NVIDIA_TF32_OVERRIDE",
                                   "OMP_NUM_THREADS",
                                   "MKL_CBWR",
                                   "DNNL_MAX_CPU_ISA",
                                   "ONEDNN_MAX_CPU_ISA",
                                   "ATEN_CPU_CAPABILITY",
                                   "GLIBC_TUNABLES",
                                   "MALLOC_ARENA_MAX",
                                   "LOCKSTEP_SEED",
                                   "LOCKSTEP_PROBE_DTYPE",
                                   "LD_LIBRARY_PATH"};
  const char* libraries = std::getenv("LD_LIBRARY_PATH");
  const std::string before = libraries == nullptr ? "" : libraries;
  for (const char* name : forwarded) {
    setenv(name, std::string(name) == "GLIBC_TUNABLES" ? "" : "1", 1);
  }
  setenv("SECRET_TOKEN", "x", 1);
  const Launched result =
      launch({"run", "-n", "2", "--host", "a,b", "--dry-run", "--", "/bin/true"});
  EXPECT_THAT(result.out, Not(HasSubstr("SECRET_TOKEN")));
  for (const char* name : forwarded) {
    EXPECT_THAT(result.out, HasSubstr(std::string("-x ") + name));
    unsetenv(name);
  }
  if (libraries != nullptr) {
    setenv("LD_LIBRARY_PATH", before.c_str(), 1);
  }
  unsetenv("SECRET_TOKEN");
}

/// Sets variables for a scope.
class Variables {
 public:
  explicit Variables(std::vector<std::pair<const char*, const char*>> all) : all_(std::move(all)) {
    for (const auto& [name, value] : all_) {
      setenv(name, value, 1);
    }
  }
  ~Variables() {
    for (const auto& [name, value] : all_) {
      unsetenv(name);
    }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::pair<const char*, const char*>> all_;
};

/// What `lockstep run` would do in a job of a batch system.
struct Job {
  std::vector<std::pair<std::string, std::string>> variables;
  std::string says;
  std::string command;
};

TEST(LauncherStart, TheNodesOfABatchSystemAreUsed) {
  const Folder folder;
  std::ofstream(folder.path() + "/nodes") << "a\na\nb\n";
  const std::string nodes = folder.path() + "/nodes";
  const std::vector<Job> jobs = {
      {{{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "6"}, {"SLURM_JOB_NUM_NODES", "2"}},
       "6 ranks, as many as Slurm job 17 has tasks",
       "mpirun -n 6 "},
      {{{"PBS_JOBID", "8"}, {"PBS_NODEFILE", nodes}}, "PBS job 8", "mpirun -n 3 "},
      {{{"LSB_JOBID", "9"}, {"LSB_MCPU_HOSTS", "a 4 b 3"}}, "LSF job 9", "mpirun -n 7 "},
      {{{"FLUX_JOB_ID", "x"}, {"FLUX_JOB_NNODES", "2"}}, "", "mpirun -n "},
  };
  setenv("NCCL_DEBUG", "1", 1);
  for (const Job& job : jobs) {
    for (const auto& [name, value] : job.variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    const Launched result = launch({"run", "--dry-run", "--", "/bin/true"});
    EXPECT_THAT(result.error, HasSubstr(job.says));
    EXPECT_THAT(result.out, AllOf(HasSubstr(job.command), HasSubstr("-x NCCL_DEBUG"),
                                  Not(HasSubstr("--oversubscribe"))));
    EXPECT_THAT(launch({"run", "-n", "2", "--dry-run", "--", "/bin/true"}).out,
                HasSubstr("mpirun -n 2 "));
    for (const auto& [name, value] : job.variables) {
      unsetenv(name.c_str());
    }
  }
  unsetenv("NCCL_DEBUG");
}

TEST(LauncherStart, AShellOfABatchSystemIsOneTaskWithAllTheGpus) {
  const Variables shell({{"SLURM_JOB_ID", "17"},
                         {"SLURM_NTASKS", "1"},
                         {"SLURM_STEP_NUM_TASKS", "1"},
                         {"SLURM_PROCID", "0"},
                         {"PMIX_RANK", "0"},
                         {"SLURM_JOB_NUM_NODES", "1"}});
  for (const char* count : {"1", "4"}) {
    const MadeDriver driver(count);
    const Launched result = launch({"run", "--dry-run", "--", "/bin/true"});
    EXPECT_THAT(result.error, HasSubstr(std::string(count) + " rank"));
    EXPECT_THAT(result.error, HasSubstr("one for each visible GPU"));
    EXPECT_EQ(result.out.find("--oversubscribe") != std::string::npos, *count == '4')
        << "Slurm has told mpirun of one slot: " << result.out;
  }
  const MadeDriver none("0");
  EXPECT_THAT(launch({"run", "--dry-run", "--", "/bin/true"}).error,
              HasSubstr("1 rank, as many as Slurm job 17 has tasks"));
}

TEST(LauncherStart, ANodesListOfGpusStaysOnIt) {
  const Variables lists({{"CUDA_VISIBLE_DEVICES", "0,1"}, {"NVIDIA_VISIBLE_DEVICES", "all"}});
  const std::vector<std::string> hosts = {"run", "-n",        "2",  "--host",
                                          "a,b", "--dry-run", "--", "/bin/true"};
  EXPECT_THAT(launch(hosts).out, HasSubstr("-x CUDA_VISIBLE_DEVICES"));
  const Variables job({{"SLURM_JOB_ID", "17"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_JOB_NUM_NODES", "2"},
                       {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}});
  for (const auto& command : {hosts, {"run", "--dry-run", "--", "/bin/true"}}) {
    EXPECT_THAT(launch(command).out,
                AllOf(HasSubstr("-x CUDA_DEVICE_ORDER"), Not(HasSubstr("VISIBLE_DEVICES"))));
  }
}

TEST(LauncherStart, ARankIsThatOfItsLauncher) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID",
                           "JSM_NAMESPACE_RANK", "FLUX_TASK_RANK"}) {
    setenv(name, "5", 1);
    EXPECT_THAT(launch({"exec-rank", "--", "/bin/echo", "a"}).error, HasSubstr("\x1e"
                                                                               "5.a\n"))
        << name;
    unsetenv(name);
  }
}

}  // namespace
}  // namespace lockstep::testing
