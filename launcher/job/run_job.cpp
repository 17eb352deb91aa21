#include "job/run_job.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include "cause/cause.h"
#include "cause/cause_text.h"
#include "cause/failure_report.h"
#include "clean/leftovers.h"
#include "job/job.h"
#include "job/job_streams.h"
#include "job/restart_policy.h"
#include "machine/machine.h"
#include "machine/visible_gpus.h"
#include "rank/child_process.h"
#include "rank/exit_codes.h"
#include "rank/terminal_columns.h"
#include "start/ask_hosts.h"
#include "start/elastic_world.h"
#include "start/mpirun_command.h"
#include "start/places.h"
#include "start/shell_quote.h"

namespace lockstep::launcher {
namespace {

using std::chrono::seconds;
using Clock = StopLadder::Clock;

/// mpirun forwards SIGUSR1 and returns the ranks' exit code; after SIGTERM ranks have less than a
/// second, and it returns 1.
StopLadder polite_ladder(int grace_seconds, int end_signal) {
  return StopLadder(
      {{SIGUSR1, seconds(grace_seconds)}, {end_signal, seconds(5)}, {SIGKILL, seconds(1)}},
      /*same_request=*/seconds(2));
}

/// Reports the ranks that ignored a request to stop if others obeyed.
void say_who_was_deaf(const RankTable& ranks) {
  const auto deaf = ranks.where([](const RankRecord& rank) { return rank.code == 128 + SIGUSR1; });
  if (!deaf.empty() && deaf.size() < static_cast<size_t>(ranks.size())) {
    std::cerr << "lockstep: rank " << deaf.front()
              << " was ended by SIGUSR1, with which the ranks are asked to stop, and the others "
                 "with it; a rank without a Trainer must ignore SIGUSR1 and SIGTERM and learn of "
                 "the stop from the others\n";
  }
}

/// Removes what killed runs left.
void say_removed() {
  if (const size_t count = remove_leftovers(leftover_places()).size(); count > 0) {
    std::cerr << "lockstep: removed " << count
              << (count == 1 ? " file or folder" : " files and folders")
              << " that killed runs left in /dev/shm and in the folder for temporary files\n";
  }
}

/// The exit code of an attempt, which find_cause() decides. The first row that fits:
///   0         all ranks ended well: mpirun ended with 0, or each rank if mpirun does not tell
///   a rank's  a rank failed by itself: its code, 128 + n for signal n, 20 for a rank that ended
///             with 0 before its runtime had
///   75        a rank saved and left. No failure; it is named if nobody had asked the job to stop
///   20        a deadline has passed (--timeout, --start-timeout, --end-timeout), and ranks were
///             ended; or ranks were lost, or did not come where others waited for them
///   128 + n   signal n asked the launcher to stop, and ranks died of the signals that it sent
///   a rank's  after a request to stop: the first code other than 0
///   mpirun's  no rank reported a failure: mpirun could not start the job
/// A request to stop that comes between two attempts ends the job with the code of the first of
/// them. run_job() itself adds 2 (the program is not there, or --min-ranks is too large) and 3
/// (there is no mpirun).
int report_end(const std::optional<Cause>& cause, const JobEnd& end, const StopLadder& ladder,
               const RankTable& ranks, const JobOutput& output) {
  const int stop_signal = ladder.asked();
  const bool all_ended_well =
      ranks.where([](const RankRecord& rank) { return rank.code == 0; }).size() ==
      static_cast<size_t>(ranks.size());
  const bool is_killed = cause ? cause->ended_as_asked && cause->code > 128 : !all_ended_well;
  if (stop_signal != 0 && ladder.is_forced() && end.code != 0 && is_killed) {
    std::cerr << "lockstep: the ranks were ended before they stopped by themselves; what they had "
                 "not saved is lost; --grace SECONDS gives them longer\n";
    return 128 + stop_signal;
  }
  if (!cause) {
    if (end.code != 0) {
      std::cerr << "lockstep: the job ended with " << end.code
                << " though no rank reported a failure: mpirun could not start it\n";
    }
    return end.code;
  }
  if (cause->ended_as_asked) {
    say_who_was_deaf(ranks);
    return cause->code > 128 && stop_signal != 0 ? 128 + stop_signal : cause->code;
  }
  std::cerr << "lockstep: " << describe(*cause, ranks, output);
  return cause->code;
}

/// How long a host may take to answer before it is left out.
constexpr auto answer_time = seconds(30);

/// The names of the GPUs of this host, one a rank, if each rank has its own; else none.
std::vector<std::string> own_devices(const RunOptions& options, int ranks) {
  const char* wanted = std::getenv("LOCKSTEP_DEVICE");
  if (options.has_hosts() || visible_gpus().count != ranks ||
      (wanted != nullptr && std::string(wanted) == "cpu")) {
    return {};
  }
  std::vector<std::string> devices;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream list(visible == nullptr ? "" : visible);
  for (int rank = 0; rank < ranks; ++rank) {
    std::string device = std::to_string(rank);
    if (visible != nullptr) {
      std::getline(list, device, ',');
    }
    devices.push_back(device);
  }
  return devices;
}

class Attempts {
 public:
  Attempts(const RunOptions& asked, const JobCommand& command, std::string version,
           std::optional<Clock::time_point> deadline)
      : asked_(asked),
        deadline_(deadline),
        version_(std::move(version)),
        options_(asked),
        command_(command),
        policy_(asked.max_restarts, seconds(asked.min_uptime_seconds), deadline),
        devices_(own_devices(asked, command.ranks)) {
    if (asked.min_ranks == 0) {
      return;
    }
    std::vector<Place> places = places_of(
        asked, command.ranks, asked.has_hosts() ? std::vector<Place>() : allocated_places());
    if (command.remote && (places.empty() || places.front().name.empty())) {
      std::cerr << "lockstep: the hosts of this job are not known, so --min-ranks has no effect; "
                   "name them with --host\n";
      return;
    }
    world_.emplace(std::move(places), command.ranks, asked.min_ranks,
                   [this](const std::vector<std::string>& hosts) { return answers_of(hosts); });
  }

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
      if (next_ && !next_->news.empty()) {
        std::cerr << "lockstep: " << next_->news << std::endl;
        take(*next_);
      }
      if (!wait_for_next_attempt(decision.wait)) {
        return code_;
      }
    }
  }

 private:
  RestartPolicy::Decision run_once(int attempt) {
    if (attempt > 0) {  // before the first run_job() did
      say_removed();
    }
    set_old_logs_aside(options_.log_dir);
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    JobOutput output(std::cout, std::cerr,
                     {terminal, options_.tag, options_.log_dir, options_.shown_ranks,
                      options_.verbose, columns_of_output});
    StopLadder ladder = polite_ladder(options_.grace_seconds, command_.end_signal());
    Job job(options_, command_, deadline_, output, ladder);
    const JobEnd end = job.run();
    remove_leftovers(leftover_places());  // its notes, and what a killed mpirun left
    const auto cause = find_cause(job.ranks(), end);
    output.release(!cause || is_known_to_mpirun_alone(*cause, job.ranks()));
    code_ = report_end(cause, end, ladder, job.ranks(), output);
    RestartPolicy::Decision decision;
    if (!end.was_asked) {
      const auto uptime = std::chrono::duration_cast<seconds>(Clock::now() - job.began());
      decision = policy_.after(code_, uptime, !job.ranks().snapshot().empty(), [&](bool is_short) {
        return changes_world(job.ranks(), cause, is_short);
      });
      if (decision.restarts && next_ && next_->ranks < asked_.min_ranks) {
        decision = {false, seconds(0), "not started again: " + next_->news};
      }
    }
    if (cause && !cause->ended_as_asked) {
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

  bool changes_world(const RankTable& ranks, const std::optional<Cause>& cause, bool is_short) {
    if (!world_) {
      return false;
    }
    std::vector<ElasticWorld::Blamed> blamed;
    if (cause && !cause->ended_as_asked) {
      for (const int rank : cause->ranks) {
        blamed.push_back({rank, ranks[rank].host});
      }
    }
    next_ = world_->after(blamed, is_short);
    return !next_->news.empty();
  }

  /// The next attempts run in this world.
  void take(const ElasticWorld::World& world) {
    options_ = asked_;
    options_.ranks = world.ranks;
    if (!world.is_whole && !world.places.front().name.empty()) {
      options_.hostfile.clear();
      options_.hosts = list_of(world.places);
    }
    command_ = job_command(options_, version_);
    if (!devices_.empty() && world.places.front().name.empty()) {
      std::string devices;
      for (const int number : world.numbers) {
        devices += (devices.empty() ? "" : ",") + devices_[static_cast<size_t>(number)];
      }
      setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), /*overwrite=*/1);
    }
  }

  std::map<std::string, std::string> answers_of(const std::vector<std::string>& hosts) const {
    const auto command = [&](const std::string& host) {
      RunOptions question = asked_;
      question.ranks = 1;
      question.hostfile.clear();
      question.hosts = host;
      question.program = {"/bin/true"};
      return job_command(question, version_).arguments;
    };
    const auto left = deadline_ ? std::max(*deadline_ - Clock::now(), Clock::duration(0))
                                : Clock::duration(answer_time);
    return ask_hosts(
        hosts, command,
        static_cast<int>(std::min(answer_time, std::chrono::ceil<seconds>(left)).count()));
  }

  const RunOptions& asked_;
  const std::optional<Clock::time_point> deadline_;
  const std::string version_;
  RunOptions options_;  // of the present attempt
  JobCommand command_;
  RestartPolicy policy_;
  const std::vector<std::string> devices_;
  std::optional<ElasticWorld> world_;  // set if it may change
  std::optional<ElasticWorld::World> next_;
  int code_ = 0;
};

/// Identifies this job: an attempt may take over a lock of an earlier attempt of the same job.
std::string drawn_word() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}

/// Open MPI's mpirun crashes without.
bool has_home() {
  return std::getenv("HOME") != nullptr || getpwuid(geteuid()) != nullptr;
}

/// What mpirun says of its version; without a home that of Open MPI 5 says nothing.
std::string version_of(const std::string& mpirun) {
  const std::string text = output_of({mpirun, "--version"});
  return text.empty() && !has_home() ? "(Open MPI) 5" : text;
}

}  // namespace

int run_job(const RunOptions& options) {
  std::optional<Clock::time_point> deadline;
  if (options.timeout_seconds > 0) {
    deadline = Clock::now() + seconds(options.timeout_seconds);
  }
  if (find_program(options.program.front()).empty()) {
    const std::string name = options.program.front();
    const bool is_here = name.find('/') == std::string::npos && !find_program("./" + name).empty();
    std::cerr << "lockstep: cannot run " << name
              << (is_here
                      ? ": no folder of PATH has it; write ./" + name + "\n"
                      : ": there is no such program, or it is not executable; check the path\n");
    return exit_usage;
  }
  setenv("LOCKSTEP_PROGRESS", isatty(STDOUT_FILENO) == 1 ? "bar" : "plain", /*overwrite=*/0);
  // Must come before the environment for other hosts is listed.
  setenv("LOCKSTEP_LAUNCH", drawn_word().c_str(), /*overwrite=*/1);
  setenv("LOCKSTEP_ATTEMPT", "0", /*overwrite=*/1);
  const bool has_mpirun = !find_program(options.mpirun).empty();
  const std::string version = has_mpirun ? version_of(options.mpirun) : "(Open MPI) 4";
  if (!options.dry_run) {
    say_removed();  // job_command() asks how much room /dev/shm has
  }
  if (options.mpirun.find('/') != std::string::npos) {
    setenv("LOCKSTEP_MPIRUN", options.mpirun.c_str(), 1);  // for the ranks: mpi_files.h
  }
  const JobCommand command = job_command(options, version);
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
  if (command.uses_mpirun() && open_mpi_version(version) > 0 && !has_home()) {
    std::cerr << "lockstep: HOME is not set, and user " << geteuid()
              << " has no entry in the list of users, so mpirun would crash; set HOME, for example "
                 "HOME=/tmp\n";
    return exit_environment;
  }
  if (options.min_ranks > command.ranks) {
    std::cerr << "lockstep: --min-ranks " << options.min_ranks << " is more than the job's "
              << command.ranks << " ranks\n";
    return exit_usage;
  }
  JobStreams streams;
  const int code = Attempts(options, command, version, deadline).run();
  // A reader may be as slow as it likes after a good end. After another one the nodes are needed.
  streams.finish(code == 0 ? std::nullopt : std::make_optional(JobStreams::kPatience));
  return code;
}

}  // namespace lockstep::launcher
