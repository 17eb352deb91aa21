#include "run_job.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "child_process.h"
#include "exit_codes.h"
#include "job_output.h"
#include "line_splitter.h"
#include "machine.h"
#include "mpirun_command.h"
#include "shell_quote.h"
#include "stop_ladder.h"

namespace lockstep::launcher {
namespace {

using std::chrono::seconds;

constexpr size_t whole_line = 1 << 20;  // ranks have cut theirs already

std::string output_of(const std::vector<std::string>& arguments) {
  std::string output;
  ChildProcess child(arguments);
  child.run([&](bool, std::string_view bytes) { output += bytes; }, [](int) {},
            [] { return std::nullopt; });
  return output;
}

/// mpirun passes SIGUSR1 on and keeps the ranks' exit code; after SIGTERM it gives them less than
/// a second and returns 1.
StopLadder polite_ladder(int grace_seconds) {
  return StopLadder(
      {{SIGUSR1, seconds(grace_seconds)}, {SIGTERM, seconds(5)}, {SIGKILL, seconds(1)}},
      /*same_request=*/seconds(2));
}

/// One rank runs under the wrapper, too: the wrapper ends the rank when this process dies.
std::vector<std::string> wrapped(const JobCommand& command) {
  std::vector<std::string> arguments = command.arguments;
  if (!command.uses_mpirun()) {
    arguments.insert(arguments.begin(), {own_program(), "exec-rank", "--"});
  }
  return arguments;
}

int run(const JobCommand& command, StopLadder& ladder, JobOutput& output) {
  ChildProcess child(wrapped(command));
  LineSplitter streams[2] = {LineSplitter(whole_line), LineSplitter(whole_line)};
  const auto hand_on = [&](const std::string& text, char) {
    if (const auto line = decode(text)) {
      output.add(*line);
    } else {
      output.add_other(text);
    }
  };
  const auto send = [&](int signal) { child.send(signal, false); };
  const int code = child.run(
      [&](bool is_error, std::string_view bytes) { streams[is_error].add(bytes, hand_on); },
      [&](int signal) {
        if (signal == SIGUSR1 || signal == SIGUSR2) {
          send(signal);
          return;
        }
        const char* what = ladder.asked() != 0 ? ": asking harder" : ": asking the ranks to stop";
        if (ladder.ask(signal, send)) {
          std::cerr << "lockstep: SIG" << sigabbrev_np(signal) << what << std::endl;
        }
      },
      [&] { return ladder.tick(send); });
  for (LineSplitter& stream : streams) {
    stream.finish(hand_on);
  }
  return code;
}

int finish(const JobOutput& output, int code, int stop_signal) {
  const auto failure = output.failure();
  if (!failure) {
    if (code != 0) {
      std::cerr << "lockstep: the job ended with " << code
                << " though no rank reported a failure: mpirun could not start it, or a rank left "
                   "without MPI_Finalize\n";
    }
    return code;
  }
  if (failure->stopped) {
    const bool died = failure->code > 128;
    return died && stop_signal != 0 ? 128 + stop_signal : failure->code;
  }
  std::cerr << "lockstep: " << output.describe(*failure);
  return failure->code;
}

}  // namespace

int run_job(const RunOptions& options) {
  if (find_program(options.program.front()).empty()) {
    std::cerr << "lockstep: cannot run " << options.program.front()
              << ": there is no such program, or it is not executable; check the path\n";
    return exit_usage;
  }
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
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  setenv("LOCKSTEP_PROGRESS", terminal ? "bar" : "plain", /*overwrite=*/0);
  JobOutput output(std::cout, terminal, options.tag, options.log_dir);
  StopLadder ladder = polite_ladder(options.grace_seconds);
  const int code = run(command, ladder, output);
  return finish(output, code, ladder.asked());
}

}  // namespace lockstep::launcher
