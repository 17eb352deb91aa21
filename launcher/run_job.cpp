#include "run_job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "cause.h"
#include "exit_codes.h"
#include "failure_report.h"
#include "job.h"
#include "leftovers.h"
#include "log_folder.h"
#include "machine.h"
#include "mpirun_command.h"
#include "restart_policy.h"
#include "shell_quote.h"

namespace lockstep::launcher {
namespace {

using std::chrono::seconds;

std::string output_of(const std::vector<std::string>& arguments) {
  std::string output;
  ChildProcess child(arguments);
  ChildProcess::Events events;
  events.on_bytes = [&](bool, std::string_view bytes) { output += bytes; };
  child.run(events);
  return output;
}

/// mpirun passes SIGUSR1 on and keeps the ranks' exit code; after SIGTERM it gives them less than
/// a second and returns 1.
StopLadder polite_ladder(int grace_seconds) {
  return StopLadder(
      {{SIGUSR1, seconds(grace_seconds)}, {SIGTERM, seconds(5)}, {SIGKILL, seconds(1)}},
      /*same_request=*/seconds(2));
}

/// The job's exit code.
int say(const std::optional<Cause>& cause, const JobEnd& end, int stop_signal,
        const RankTable& ranks, const JobOutput& output) {
  if (!cause) {
    if (end.code != 0) {
      std::cerr << "lockstep: the job ended with " << end.code
                << " though no rank reported a failure: mpirun could not start it\n";
    }
    return end.code;
  }
  if (cause->stopped) {
    return cause->code > 128 && stop_signal != 0 ? 128 + stop_signal : cause->code;
  }
  std::cerr << "lockstep: " << describe(*cause, ranks, output);
  return cause->code;
}

/// Waits before the next attempt. False: somebody asks us to stop.
bool wait_for(seconds time) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    sigaddset(&signals, signal);
  }
  const timespec limit = {static_cast<time_t>(time.count()), 0};
  return sigtimedwait(&signals, nullptr, &limit) < 0;
}

class Attempts {
 public:
  Attempts(const RunOptions& options, const JobCommand& command)
      : options_(options),
        command_(command),
        policy_(options.max_restarts, seconds(options.min_uptime_seconds)) {}

  int run() {
    for (int attempt = 0;; ++attempt) {
      setenv("LOCKSTEP_ATTEMPT", std::to_string(attempt).c_str(), /*overwrite=*/1);
      const auto decision = run_once(attempt);
      if (!decision.reason.empty()) {
        std::cerr << "lockstep: " << decision.reason << std::endl;
      }
      if (!decision.restarts) {
        return code_;
      }
      std::cerr << "lockstep: starting the job again in " << decision.wait.count() << " s, attempt "
                << attempt + 2 << " of at most " << options_.max_restarts + 1 << std::endl;
      if (!wait_for(decision.wait)) {
        return code_;
      }
    }
  }

 private:
  RestartPolicy::Decision run_once(int attempt) {
    if (const size_t count = remove_leftovers(leftover_places()).size(); count > 0) {
      std::cerr << "lockstep: removed " << count
                << (count == 1 ? " file or folder" : " files and folders")
                << " that killed runs left in /dev/shm and in the folder for temporary files\n";
    }
    set_old_logs_aside(options_.log_dir);
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    JobOutput output(
        std::cout, std::cerr,
        {terminal, options_.tag, options_.log_dir, options_.shown_ranks, options_.verbose});
    StopLadder ladder = polite_ladder(options_.grace_seconds);
    Job job(options_, command_, output, ladder);
    const JobEnd end = job.run();
    const auto cause = find_cause(job.ranks(), output, end);
    output.release(!cause);
    code_ = say(cause, end, ladder.asked(), job.ranks(), output);
    RestartPolicy::Decision decision;
    if (!end.was_asked) {
      const auto uptime = std::chrono::duration_cast<seconds>(Job::now() - job.began());
      decision = policy_.after(code_, uptime, !job.ranks().snapshot().empty());
    }
    if (cause && !cause->stopped) {
      report(attempt, *cause, job.ranks(), output, decision.restarts);
    }
    return decision;
  }

  void report(int attempt, const Cause& cause, const RankTable& ranks, const JobOutput& output,
              bool is_restarted) const {
    const std::string path = !options_.failure_file.empty() ? options_.failure_file
                             : !options_.log_dir.empty()    ? options_.log_dir + "/failure.json"
                                                            : "";
    if (!path.empty()) {
      write_report(path, {attempt, cause, &ranks, &output, options_.program, is_restarted});
    }
  }

  const RunOptions& options_;
  const JobCommand& command_;
  RestartPolicy policy_;
  int code_ = 0;
};

}  // namespace

int run_job(const RunOptions& options) {
  if (find_program(options.program.front()).empty()) {
    std::cerr << "lockstep: cannot run " << options.program.front()
              << ": there is no such program, or it is not executable; check the path\n";
    return exit_usage;
  }
  setenv("LOCKSTEP_PROGRESS", isatty(STDOUT_FILENO) == 1 ? "bar" : "plain", /*overwrite=*/0);
  setenv("LOCKSTEP_ATTEMPT", "0", /*overwrite=*/1);  // before the names for other hosts are listed
  const bool has_mpirun = !find_program(options.mpirun).empty();
  const JobCommand command =
      job_command(options, has_mpirun ? output_of({options.mpirun, "--version"}) : "Open MPI");
  for (const std::string& note : command.notes) {
    std::cerr << "lockstep: " << note << "\n";
  }
  if (options.dry_run) {
    std::cout << shell_quote(command.arguments) << "\n";
    return 0;
  }
  if (command.uses_mpirun() && !has_mpirun) {
    std::cerr << "lockstep: cannot find " << options.mpirun
              << "; install Open MPI (Debian: apt install openmpi-bin), name it with --mpirun, or "
                 "run one rank with -n 1\n";
    return exit_environment;
  }
  return Attempts(options, command).run();
}

}  // namespace lockstep::launcher
