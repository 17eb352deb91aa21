#pragma once

#include <string>
#include <vector>

#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// Where the facts are read; tests name folders of their own.
struct MachineFolders {
  std::string shared_memory = "/dev/shm";
  std::string temporary = "/tmp";
  std::string processes = "/proc";
  std::string system = "/sys";
  double youngest_leftover = 60.0;  // seconds: younger files may belong to a job that starts
};

/// Fills in what the machine says: host, cores, shared memory, limits, leftovers, fabric.
void read_machine(RankFacts& facts, const MachineFolders& folders = {});

/// Files of Open MPI, NCCL and lockstep in shared memory that no process maps, and session folders
/// of Open MPI whose process is dead; this user's only.
std::vector<Leftover> find_leftovers(const MachineFolders& folders);

/// The node of the machine's memory that is nearest to a PCI device; -1: unknown.
int numa_of_device(const std::string& bus, const MachineFolders& folders = {});

/// Writes `bytes` to a file of this rank in `folder`, and measures. remove_probe() removes it.
FolderFacts probe_folder(const std::string& folder, int rank, int64_t bytes);
/// Whether the file of rank 0 is there.
bool sees_probe(const std::string& folder, int rank);
void remove_probe(const std::string& folder, int rank);

}  // namespace lockstep::doctor
