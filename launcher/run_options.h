#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// What `lockstep run` was asked for.
struct RunOptions {
  int ranks = 0;  // 0: one for each GPU, or else for each core
  std::string hostfile;
  std::string hosts;
  std::string log_dir;
  std::string bind = "none";
  std::string mpirun = "mpirun";
  std::vector<std::string> mpi_arguments;
  int grace_seconds = 30;
  bool dry_run = false;
  bool tag = true;
  std::vector<std::string> program;

  bool has_hosts() const { return !hostfile.empty() || !hosts.empty(); }
};

}  // namespace lockstep::launcher
