// lockstep doctor: a program of its own, since the launcher does not link LibTorch.
#include <fcntl.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "doctor/examination.h"
#include "machine/machine.h"
#include "machine/visible_gpus.h"
#include "rank/exit_codes.h"
#include "start/refusal.h"

namespace lockstep::doctor {
namespace {

using launcher::exit_environment;
using launcher::exit_usage;

/// The number in a variable; -1: it is not set.
int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? -1 : std::atoi(text);
}

/// Whether a launcher has started this process as one of its ranks. A step of one task is Slurm's
/// interactive shell (srun --pty bash), which has PMIx's or PMI's variables of rank 0, too.
bool is_a_rank() {
  const int rank = std::max(number_in("PMIX_RANK"), number_in("PMI_RANK"));
  const int tasks = number_in("SLURM_STEP_NUM_TASKS");
  return number_in("OMPI_COMM_WORLD_SIZE") > 0 || number_in("PMI_SIZE") > 1 || rank > 0 ||
         tasks > 1 || (rank == 0 && tasks < 0);
}

/// Ranks to start: as many as `lockstep run` on GPUs; two on CPUs, where more find nothing else.
int default_ranks() {
  const char* device = std::getenv("LOCKSTEP_DEVICE");
  const bool on_cpus = device != nullptr && std::string(device) == "cpu";
  const int gpus = on_cpus ? 0 : launcher::visible_gpus().count;
  return gpus > 0 ? gpus : std::min(2, launcher::physical_cores());
}

/// A temporary folder; the destructor removes it.
class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "lockstep-doctor-XXXXXX").string();
    LOCKSTEP_CHECK_CODE(mkdtemp(path_.data()) != nullptr, ExitCode::environment, "cannot create ",
                        path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Runs a program and returns its exit code; 128 + n for signal n.
int run(const std::vector<std::string>& arguments, bool silent) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (silent) {
      const int nothing = open("/dev/null", O_RDWR);
      dup2(nothing, STDOUT_FILENO);
      dup2(nothing, STDERR_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(exit_environment);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    return exit_environment;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Starts the job of stop_a_rank(), then the ranks that run the checks.
int start(int ranks, const ExaminationOptions& options) {
  const Folder folder;
  const std::string self = launcher::own_program();
  const std::string lockstep = self.substr(0, self.find_last_of('/') + 1) + "lockstep";
  const std::string stopped = folder.file("stopped");
  const std::string result = folder.file("result");
  run({lockstep, "run", "-n", "2", "--grace", "0", "--", self, "doctor", "--stop-a-rank", stopped},
      /*silent=*/true);
  std::vector<std::string> command{
      lockstep,    "run",   "--no-tag", "-n",  std::to_string(ranks), "--", self, "doctor",
      "--stopped", stopped, "--result", result};
  if (!options.snapshots.empty()) {
    command.insert(command.end(), {"--snapshots", options.snapshots});
  }
  if (!options.json.empty()) {
    command.insert(command.end(), {"--json", options.json});
  }
  if (options.is_small) {
    command.emplace_back("--small");
  }
  const int job = run(command, /*silent=*/false);
  int code = exit_environment;
  return std::ifstream(result) >> code ? code : std::max(job, exit_environment);
}

int main(int argc, char** argv) {
  ExaminationOptions options;
  std::string stop_file;
  int ranks = 0;
  CLI::App app("Checks this machine and this build.", "lockstep");
  app.require_subcommand(1);
  CLI::App* doctor = app.add_subcommand(
      "doctor",
      "Check versions, devices, limits, arithmetic, collectives and training, within a minute");
  doctor->footer(
      "On several nodes: lockstep run --hostfile FILE -n N -- lockstep doctor. Exit code: 0 if no "
      "check failed, else 3.");
  doctor
      ->add_option("-n,--ranks", ranks,
                   "Ranks to start; default: one for each GPU, else two. 1: this process alone")
      ->check(CLI::Range(1, 1 << 20));
  doctor->add_option("--snapshots", options.snapshots,
                     "Measure writing to this folder, which is made if there is none");
  doctor->add_option("--json", options.json, "Also write rows and facts to this file");
  doctor->add_flag("--small", options.is_small,
                   "Few elements and no speeds, for a device that is simulated");
  doctor->add_option("--stop-a-rank", stop_file)->group("");
  doctor->add_option("--stopped", options.stopped)->group("");
  doctor->add_option("--result", options.result_file)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return launcher::end_of_parsing(app, error, {argv + 1, argv + argc});
  }
  if (!stop_file.empty()) {
    return stop_a_rank(stop_file);
  }
  if (is_a_rank()) {
    if (ranks > 0) {
      std::cerr << "lockstep: -n is for lockstep doctor alone; a launcher has started this rank\n";
      return exit_usage;
    }
    return examine(argc, argv, options);
  }
  ranks = ranks > 0 ? ranks : default_ranks();
  return ranks == 1 ? examine(argc, argv, options) : start(ranks, options);
}

}  // namespace
}  // namespace lockstep::doctor

int main(int argc, char** argv) {
  try {
    return lockstep::doctor::main(argc, argv);
  } catch (const lockstep::Error& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return lockstep::launcher::exit_environment;
  }
}
