#pragma once

#include <set>
#include <string>
#include <vector>

namespace lockstep::launcher {

/// The options of `lockstep run`.
struct RunOptions {
  int ranks = 0;  // 0: one for each GPU, or else for each core
  std::string hostfile;
  std::string hosts;
  std::string log_dir;
  std::string failure_file;
  std::string bind = "none";
  std::string mpirun = "mpirun";
  std::vector<std::string> mpi_arguments;
  std::set<int> shown_ranks;  // empty: all
  int grace_seconds = 30;
  int timeout_seconds = 0;  // of all attempts together; 0: none, also below
  int start_timeout_seconds = 600;
  int end_timeout_seconds = 0;
  int report_seconds = 30;  // when late ranks are reported
  int max_restarts = 0;
  int min_ranks = 0;  // 0: a restart has as many ranks as the first start
  int min_uptime_seconds = 60;
  bool verbose = false;
  bool dry_run = false;
  bool tag = true;
  std::vector<std::string> program;

  bool has_hosts() const { return !hostfile.empty() || !hosts.empty(); }
};

}  // namespace lockstep::launcher
