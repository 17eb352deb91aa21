#include <lockstep/collectives/impl/cuda_driver.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "clean/leftovers.h"
#include "diff/digest_diff.h"
#include "job/run_job.h"
#include "machine/built_with.h"
#include "machine/libtorch_place.h"
#include "machine/machine.h"
#include "machine/visible_gpus.h"
#include "predict/predict.h"
#include "rank/child_process.h"
#include "rank/exit_codes.h"
#include "rank/rank_process.h"
#include "start/nearest_name.h"
#include "start/refusal.h"

namespace lockstep::launcher {
namespace {

void add_run_options(CLI::App& run, RunOptions& options, std::string& show_ranks) {
  run.add_option("-n,--ranks", options.ranks,
                 "Number of ranks; default: one for each GPU, or else for each physical core")
      ->check(CLI::Range(1, 1 << 20));
  run.add_option("--hostfile", options.hostfile, "File that names the hosts, as mpirun takes it")
      ->check(CLI::ExistingFile);
  run.add_option("--host", options.hosts, "Hosts, as mpirun takes them: a:4,b:4");
  run.add_option("--log-dir", options.log_dir,
                 "Also write what rank R prints to DIR/rank-R.log; the logs of the attempt before "
                 "move to DIR/attempt-N");
  run.add_option("--failure-file", options.failure_file,
                 "Where the report of a failure is written, as JSON; default: failure.json in the "
                 "folder of --log-dir, if there is one");
  run.add_option("--show-ranks", show_ranks,
                 "Show the output of these ranks only: 0,4-7; logs are written for all");
  run.add_flag("--verbose", options.verbose, "Show all that mpirun itself prints, at once");
  run.add_flag("--dry-run", options.dry_run, "Print the exact command and do not run it");
  run.add_flag("!--no-tag", options.tag, "Do not put [rank] before each line");
  run.add_option("--bind", options.bind, "Bind each rank to a core, or to none (default)")
      ->check(CLI::IsMember({"none", "core"}));
  run.add_option("--grace", options.grace_seconds,
                 "Seconds that ranks get to save and stop after SIGTERM or SIGINT; default 30")
      ->check(CLI::Range(0, 86400));
  run.add_option("--timeout", options.timeout_seconds,
                 "Seconds for the whole run, all attempts and the waits between them: then the "
                 "ranks are asked to save and stop, and there is no restart; default: none")
      ->check(CLI::Range(0, 1 << 30));
  run.add_option("--start-timeout", options.start_timeout_seconds,
                 "Seconds that ranks wait for others that do not start; default 600, 0: no limit")
      ->check(CLI::Range(0, 1 << 30));
  run.add_option("--end-timeout", options.end_timeout_seconds,
                 "Seconds that ranks may run on after others have ended; default 0: no limit, "
                 "since a rank may evaluate alone")
      ->check(CLI::Range(0, 1 << 30));
  run.add_option("--report-after", options.report_seconds,
                 "Seconds after which ranks that are late at start or end are named; default 30")
      ->check(CLI::Range(1, 1 << 30));
  run.add_option("--max-restarts", options.max_restarts,
                 "How often a failed job is started again; default 0")
      ->check(CLI::Range(0, 1 << 20));
  run.add_option("--min-ranks", options.min_ranks,
                 "A restart may have fewer ranks, but no fewer than these: without the hosts that "
                 "do not answer, and without a host or rank that fails again at once; default: as "
                 "many as at first. Needs --max-restarts")
      ->check(CLI::Range(1, 1 << 20));
  run.add_option("--min-uptime", options.min_uptime_seconds,
                 "Two attempts in a row that are shorter than these seconds and save no snapshot "
                 "end the restarts; default 60")
      ->check(CLI::Range(0, 1 << 30));
  run.add_option("--mpirun", options.mpirun, "The mpirun to use; default: the one in PATH");
  run.add_option("--mpi-arg", options.mpi_arguments,
                 "One more argument for mpirun, may be repeated: --mpi-arg=--display-map")
      ->allow_extra_args(false);
}

/// Parses a list such as "0,4-7"; empty text: no numbers. nullopt for other texts.
std::optional<std::set<int>> numbers_in(const std::string& text) {
  std::set<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int low = 0;
    int high = 0;
    char rest = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d%c", &low, &high, &rest);
    if (read < 1 || read > 2 || low < 0 || (read == 1 && part != std::to_string(low)) ||
        (read == 2 && high < low) || (read == 2 && high > 1 << 20)) {
      return std::nullopt;
    }
    for (int number = low; number <= (read == 2 ? high : low); ++number) {
      numbers.insert(number);
    }
  }
  return numbers;
}

int clean_leftovers(bool lists_only) {
  const LeftoverPlaces places = leftover_places();
  for (const std::string& path : lists_only ? find_leftovers(places) : remove_leftovers(places)) {
    std::cout << path << "\n";
  }
  return 0;
}

/// The folder that has bin/lockstep.
std::string own_prefix() {
  return std::filesystem::path(own_program()).parent_path().parent_path().string();
}

/// Replaces this process by a program that needs LibTorch, from the same folder.
int exec_tool(const std::string& name, char** argv) {
  const auto libtorch =
      find_libtorch({LOCKSTEP_LIBTORCH_VERSION, own_prefix(),
                     [](const char* variable) { return std::getenv(variable); }, torch_of_python});
  if (!libtorch) {
    std::cerr << "lockstep: " << name << " needs LibTorch " LOCKSTEP_LIBTORCH_VERSION
              << ", and finds it neither beside " << own_prefix()
              << " nor in the active Python environment. Set LibTorch_ROOT to the torch folder of "
                 "that version, or activate an environment with torch==" LOCKSTEP_LIBTORCH_VERSION
                 "\n";
    return exit_environment;
  }
  std::string folders;
  for (const std::string& folder : libtorch->library_folders) {
    folders += (folders.empty() ? "" : ":") + folder;
  }
  if (!folders.empty()) {
    const char* before = std::getenv("LD_LIBRARY_PATH");
    setenv("LD_LIBRARY_PATH", (folders + (before ? ":" + std::string(before) : "")).c_str(), 1);
  }
  const std::string own = own_program();
  const std::string tool = own.substr(0, own.find_last_of('/') + 1) + name;
  execv(tool.c_str(), argv);
  std::cerr << "lockstep: cannot start " << tool << ": " << std::strerror(errno) << "\n";
  return exit_environment;
}

int wrong_usage(const std::string& what) {
  std::cerr << "lockstep: " << what << "\n";
  return exit_usage;
}

/// What follows -- on the command line; empty: there is no --.
using Program = std::optional<std::vector<std::string>>;
/// Runs a sub-command once the command line is parsed; returns the exit code.
using Run = std::function<int()>;

Run prepare_run(CLI::App& run, const Program& program) {
  const auto asked = std::make_shared<std::pair<RunOptions, std::string>>();
  add_run_options(run, asked->first, asked->second);
  run.prefix_command();  // the program follows the options, with or without --
  return [&run, &program, asked] {
    auto& [options, show_ranks] = *asked;
    const auto shown = numbers_in(show_ranks);
    if (!shown) {
      return wrong_usage("--show-ranks " + show_ranks + " is no list of ranks such as 0,4-7");
    }
    options.shown_ranks = *shown;
    options.program = run.remaining();
    if (!options.program.empty() && options.program.front().front() == '-') {
      return wrong_usage(no_such_option(run, options.program.front()) +
                         "; see lockstep run --help");
    }
    if (program) {
      if (!options.program.empty()) {
        options.program.emplace_back("--");  // the program's own
      }
      options.program.insert(options.program.end(), program->begin(), program->end());
    }
    if (options.min_ranks > 0 && options.max_restarts == 0) {
      return wrong_usage("--min-ranks is for restarts: give --max-restarts, too");
    }
    return options.program.empty()
               ? wrong_usage(
                     "no program to run; expected: lockstep run [options] -- program [arguments]")
               : run_job(options);
  };
}

Run prepare_diff(CLI::App& diff, const Program&) {
  const auto runs = std::make_shared<std::pair<std::string, std::string>>();
  diff.add_option("run-a", runs->first,
                  "A file of TrainerOptions::digest_log, or a folder with a digests.jsonl")
      ->required();
  diff.add_option("run-b", runs->second,
                  "The other one. Exit code 0: equal, 1: different, 2: unreadable")
      ->required();
  return [runs] { return diff_runs(runs->first, runs->second, std::cout, std::cerr); };
}

Run prepare_predict(CLI::App& forecast, const Program&) {
  const auto asked = std::make_shared<Question>();
  forecast.add_option("-n,--ranks", asked->ranks, "A range such as 2..64 (default), or 2,3,4");
  forecast.add_option("--network", asked->network, "JSON file with the figures of node and link")
      ->required();
  forecast
      .add_option("record", asked->record, "The trace of lockstep::StepTrace, or a file of figures")
      ->required();
  forecast.add_flag("--shard-optimizer", asked->sharding.optimizer,
                    "With TrainerOptions::shard_optimizer");
  forecast.add_flag("--share-weights", asked->sharding.weights,
                    "One copy of the weights per node, as hosts have it by default");
  forecast
      .add_option("--weight-bytes", asked->sharding.weight_element,
                  "Bytes of an element of the weights: 4 (default), or 2 with O2 and O3")
      ->check(CLI::Range(1, 16));
  return [asked] { return predict(*asked, std::cout, std::cerr); };
}

Run prepare_clean(CLI::App& clean, const Program&) {
  const CLI::Option* list =
      clean.add_flag("--list", "Print what would be removed, one path a line, and remove nothing");
  return [list] { return clean_leftovers(list->as<bool>()); };
}

struct SubCommand {
  const char* name;
  const char* help;
  Run (*prepare)(CLI::App& command, const Program& program);  // adds the options
  const char* tool = nullptr;  // the program that runs it, if not this one
};

constexpr SubCommand commands[] = {
    {"run", "Start a program on many ranks: lockstep run [options] [--] program [arguments]",
     prepare_run},
    {"inspect", "Print what is in a snapshot, verify it, compare two", nullptr,
     "lockstep-snapshot"},
    {"export", "Write a snapshot's weights to one safetensors file", nullptr, "lockstep-snapshot"},
    {"diff", "Find the first update, micro-batch and parameter at which two runs differ",
     prepare_diff},
    {"predict", "Say what an update would take on more ranks, from one recorded step",
     prepare_predict},
    {"clean", "Remove what killed runs of this user left on this machine, and print it",
     prepare_clean},
    {"doctor", "Check this machine, its devices and this build, within a minute", nullptr,
     "lockstep-doctor"}};

std::vector<std::string> names_of_commands() {
  std::vector<std::string> names;
  for (const SubCommand& command : commands) {
    names.emplace_back(command.name);
  }
  return names;
}

int main(int argc, char** argv) {
  const std::vector<std::string> all(argv + 1, argv + argc);
  for (const SubCommand& command : commands) {
    if (command.tool != nullptr && !all.empty() && all.front() == command.name) {
      return exec_tool(command.tool, argv);
    }
  }
  block_signals(!all.empty() && (all.front() == "run" || all.front() == "exec-rank"));
  const auto dashes = std::find(all.begin(), all.end(), "--");
  const std::vector<std::string> own(all.begin(), dashes);
  const Program program = dashes == all.end() ? Program() : Program({dashes + 1, all.end()});
  if (own == std::vector<std::string>{"exec-rank"} && program && !program->empty()) {
    return exec_rank(*program);
  }
  if (own == std::vector<std::string>{"count-gpus"}) {
    const VisibleGpus& gpus = visible_gpus();
    std::cout << gpus.count << "\n";
    std::cerr << (gpus.problem.empty() ? ""
                                       : "lockstep: " + gpus.problem + "; " +
                                             detail::advice_for_driver(gpus.error) + "\n");
    return 0;
  }
  const std::vector<std::string> names = names_of_commands();
  if (!own.empty() && own.front().rfind('-', 0) != 0 &&
      std::find(names.begin(), names.end(), own.front()) == names.end()) {
    return wrong_usage("there is no command " + own.front() + did_you_mean(own.front(), names) +
                       "; see lockstep --help");
  }
  CLI::App app("Trains LibTorch models on many ranks.", "lockstep");
  app.set_version_flag("--version", version_text());
  app.add_flag_callback(
      "--prefix", [] { throw CLI::CallForVersion(own_prefix(), 0); },
      "Print the folder that CMAKE_PREFIX_PATH needs, and exit");
  app.require_subcommand(1);
  int code = 0;
  for (const SubCommand& command : commands) {
    CLI::App* added = app.add_subcommand(command.name, command.help);
    if (command.prepare != nullptr) {
      added->callback([&code, run = command.prepare(*added, program)] { code = run(); });
    }
  }
  try {
    std::vector<std::string> reversed(own.rbegin(), own.rend());  // the order that CLI11 takes
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return end_of_parsing(app, error, own);
  }
  return code;
}

}  // namespace
}  // namespace lockstep::launcher

int main(int argc, char** argv) {
  try {
    return lockstep::launcher::main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return lockstep::launcher::exit_environment;
  }
}
