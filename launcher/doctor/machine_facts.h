#pragma once

#include <string>
#include <vector>

#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// Where the facts are read; tests use other folders.
struct MachineFolders {
  std::string shared_memory = "/dev/shm";
  std::string temporary = "/tmp";
  std::string processes = "/proc";
  std::string system = "/sys";
  double youngest_leftover = 60.0;  // seconds: younger files may belong to a job that starts
};

/// Fills in facts of the machine: host, cores, shared memory, limits, leftovers, fabric.
void read_machine(RankFacts& facts, const MachineFolders& folders = {});

/// This user's files of Open MPI, NCCL and lockstep in shared memory that no process maps, and
/// session folders of Open MPI whose process is dead.
std::vector<Leftover> find_leftovers(const MachineFolders& folders);

/// The NUMA node of a PCI device; -1: unknown.
int numa_of_device(const std::string& bus, const MachineFolders& folders = {});

}  // namespace lockstep::doctor
