#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::doctor {

/// A visible CUDA device.
struct DeviceFacts {
  int index = 0;
  std::string uuid;
  std::string bus;           // PCI, "0000:41:00.0"; empty: unknown
  int numa = -1;             // NUMA node; -1: unknown
  int nvlinks = -1;          // active ones; -1: unknown
  std::string no_code = {};  // why it cannot run LibTorch's operators; empty: it can
};

/// A file or folder of a dead process.
struct Leftover {
  std::string path;
  int64_t bytes = 0;
};

/// The result of writing to the folder of snapshots.
struct FolderFacts {
  std::string path;   // empty: none was given
  std::string error;  // why it cannot be written to
  double megabytes_per_second = 0.0;
  double sync_seconds = 0.0;  // of a small file
  bool sees_rank_0 = true;    // this rank sees the file of rank 0
};

/// The facts of one rank for the checks of fact_checks.h.
struct RankFacts {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int launched = 0;  // ranks that the launcher started; 0: unknown
  std::string host;

  std::string compiler;
  std::string libtorch_built;
  std::string libtorch_loaded;
  bool libtorch_has_cuda = false;
  int cuda_runtime = 0;   // LibTorch's: 1000 * major + 10 * minor; 0: unknown
  int cuda_driver = -1;   // the newest CUDA that the driver supports; -1: there is no driver
  std::string no_device;  // why the GPUs of this machine cannot be used; empty: they can
  std::string no_device_fix;
  bool has_kernels = false;
  bool has_nccl = false;
  int nccl_built = 0;  // 22809 for 2.28.9; 0: without NCCL
  int nccl_loaded = 0;
  std::vector<std::string> nccl_files;
  std::string mpi;
  std::string thread_level;  // "MPI_THREAD_MULTIPLE"; empty: MPI is not in use
  std::string instructions;  // instruction sets of LibTorch's operators, of lockstep's kernels

  int gpus_present = 0;
  std::string device;  // of this rank: "cpu", "cuda:0"
  std::string device_reason;
  std::string device_uuid;
  std::string transport;
  std::string without_nccl;  // why several devices do without it; empty: they need not
  std::vector<DeviceFacts> devices;
  bool peer_memory = false;  // the kernel module nvidia_peermem
  int fabric_ports = 0;      // active InfiniBand or RoCE ports

  int cores = 0;
  int threads = 0;
  std::vector<int> cpus;  // that this rank may run on
  std::vector<int> numa;  // the NUMA nodes of these

  int64_t shm_bytes = 0;
  int64_t shm_free = 0;
  int64_t memory_available = 0;
  std::vector<Leftover> leftovers;
  int64_t memlock = -1;  // bytes; -1: unlimited
  int64_t open_files = -1;
  int64_t processes = -1;
  double clock = 0.0;  // seconds by which it is ahead of rank 0's
  double start_seconds = 0.0;
  FolderFacts snapshots;
};

std::string to_json(const RankFacts& facts);
RankFacts from_json(const std::string& text);

}  // namespace lockstep::doctor
