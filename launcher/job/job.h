#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cause/cause.h"
#include "cause/job_output.h"
#include "cause/rank_table.h"
#include "job/deadlines.h"
#include "rank/child_process.h"
#include "rank/line_splitter.h"
#include "rank/stop_ladder.h"
#include "start/mpirun_command.h"
#include "start/run_options.h"

namespace lockstep::launcher {

/// One attempt: starts all ranks and waits until the last has ended.
///
/// A request to stop makes the ranks save and leave, by the signals of `ladder`. If a rank has
/// failed or a deadline has passed, the job ends: mpirun has the grace time (at most 10 s) to end
/// the other ranks; then the launcher kills mpirun and the ranks of this host. Of an mpirun that
/// leaves that to the launcher, the wrappers end the ranks 2 s after the first has ended.
class Job {
 public:
  using Clock = StopLadder::Clock;
  /// `deadline`: the end of --timeout; empty: none.
  Job(const RunOptions& options, const JobCommand& command,
      std::optional<Clock::time_point> deadline, JobOutput& output, StopLadder& ladder);

  /// Runs the job; returns what is known about its end.
  JobEnd run();
  const RankTable& ranks() const { return ranks_; }
  Clock::time_point began() const { return began_; }

 private:
  void take(const std::string& text, bool is_error);
  void take(int signal);
  std::optional<Clock::time_point> tick();
  /// Sends a signal to mpirun, or to the only rank. SIGUSR1, which mpirun forwards, is kept until
  /// each rank has begun: before that it would reach none, or end mpirun.
  void send(int signal);
  bool has_begun() const;
  template <typename Holds>
  bool all_ranks(Holds holds) const {
    return ranks_.where([&](const RankRecord& rank) { return !holds(rank); }).empty();
  }
  void look_at_deadlines();
  void look_at_failures();
  void tear_down_in(Clock::duration time);
  /// mpirun's exit code if that tells how the ranks ended, else theirs.
  int code_of(int mpirun) const;
  void look_at_mpirun();
  /// Ctrl-Z: suspends the ranks of a job of this host; once they are, look_at_suspension() suspends
  /// the launcher, and continues the ranks after it.
  void suspend();
  void look_at_suspension();
  /// The ranks of this host that run, by their wrappers.
  std::vector<int> running_here() const;
  void end_local_ranks() const;
  int columns_for_ranks() const;

  const RunOptions& options_;
  std::optional<Clock::time_point> deadline_;  // reset once it was reported
  const bool uses_mpirun_;
  const bool ends_ranks_;  // and not mpirun
  JobOutput& output_;
  StopLadder& ladder_;
  StopLadder teardown_;
  RankTable ranks_;
  Deadlines deadlines_;
  ChildProcess child_;
  LineSplitter streams_[2];
  Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> teardown_at_;
  std::optional<Clock::time_point> suspended_at_;
  bool holds_request_ = false;
  bool has_noted_job_ = false;
  bool is_only_mpirun_left_ = false;
  JobEnd end_;
};

}  // namespace lockstep::launcher
