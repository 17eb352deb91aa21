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

/// One start of all ranks, until the last has ended.
///
/// Somebody who asks us to stop makes the ranks save and leave, by `ladder`. A rank that failed,
/// or a deadline that passed, ends the job: mpirun gets the grace time, 10 s at most, to end the
/// others, then the launcher kills mpirun and the ranks of this host.
class Job {
 public:
  using Clock = StopLadder::Clock;
  /// `deadline`: when --timeout has passed; none without.
  Job(const RunOptions& options, const JobCommand& command,
      std::optional<Clock::time_point> deadline, JobOutput& output, StopLadder& ladder);

  /// Returns what is known about the end.
  JobEnd run();
  const RankTable& ranks() const { return ranks_; }
  Clock::time_point began() const { return began_; }

 private:
  void take(const std::string& text, bool is_error);
  void take(int signal);
  std::optional<Clock::time_point> tick();
  void look_at_deadlines();
  void look_at_failures();
  void end_local_ranks() const;
  int columns_for_ranks() const;

  const RunOptions& options_;
  std::optional<Clock::time_point> deadline_;  // until it was said that it has passed
  JobOutput& output_;
  StopLadder& ladder_;
  StopLadder teardown_;
  RankTable ranks_;
  Deadlines deadlines_;
  ChildProcess child_;
  LineSplitter streams_[2];
  Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> teardown_at_;
  JobEnd end_;
};

}  // namespace lockstep::launcher
