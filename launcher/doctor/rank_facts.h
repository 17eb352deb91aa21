#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::doctor {

/// A visible CUDA device.
struct DeviceFacts {
  int index = 0;
  std::string uuid;
  std::string bus;   // PCI, "0000:41:00.0"; empty: unknown
  int numa = -1;     // node of the machine's memory that is nearest; -1: unknown
  int nvlinks = -1;  // active ones; -1: unknown
};

/// A file or folder that a dead process has left.
struct Leftover {
  std::string path;
  int64_t bytes = 0;
};

/// What writing to the folder of snapshots showed.
struct FolderFacts {
  std::string path;   // empty: the user named none
  std::string error;  // why it cannot be written to
  double megabytes_per_second = 0.0;
  double sync_seconds = 0.0;  // of a small file
  bool sees_rank_0 = true;    // the file that rank 0 wrote
};

/// Everything that the checks of fact_checks.h look at, of one rank. Tests fill it in.
struct RankFacts {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int launched = 0;  // ranks that the launcher says it started; 0: it does not say
  std::string host;

  std::string compiler;
  std::string libtorch_built;
  std::string libtorch_loaded;
  bool libtorch_has_cuda = false;
  int cuda_runtime = 0;  // LibTorch's: 1000 * major + 10 * minor; 0: unknown
  int cuda_driver = -1;  // the newest CUDA that the driver supports; -1: there is no driver
  bool has_kernels = false;
  bool has_nccl = false;
  int nccl_built = 0;  // 22809 for 2.28.9; 0: without NCCL
  int nccl_loaded = 0;
  std::vector<std::string> nccl_files;
  std::string mpi;
  std::string thread_level;  // "MPI_THREAD_MULTIPLE"; empty: MPI is not in use
  std::string instructions;  // of LibTorch's operators, then of lockstep's kernels

  int gpus_present = 0;
  std::string device;  // "cpu", "cuda:0": that of this rank
  std::string device_reason;
  std::string device_uuid;
  std::string transport;
  std::vector<DeviceFacts> devices;
  bool peer_memory = false;  // the kernel module nvidia_peermem
  int fabric_ports = 0;      // active InfiniBand or RoCE ports

  int cores = 0;
  int threads = 0;
  std::vector<int> cpus;  // that this rank may run on
  std::vector<int> numa;  // their nodes

  int64_t shm_bytes = 0;
  int64_t shm_free = 0;
  int64_t memory_available = 0;
  std::vector<Leftover> leftovers;
  int64_t memlock = -1;  // bytes; -1: unlimited
  int64_t open_files = -1;
  int64_t processes = -1;
  double clock = 0.0;  // seconds after rank 0's at the same moment
  double start_seconds = 0.0;
  FolderFacts snapshots;
};

std::string to_json(const RankFacts& facts);
RankFacts from_json(const std::string& text);

}  // namespace lockstep::doctor
