#include "doctor/rank_facts.h"

#include <nlohmann/json.hpp>

namespace lockstep::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFacts, index, uuid, bus, numa, nvlinks, no_code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Leftover, path, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderFacts, path, error, megabytes_per_second, sync_seconds,
                                   sees_rank_0)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, size, local_rank, local_size, launched, host,
                                   compiler, libtorch_built, libtorch_loaded, libtorch_has_cuda,
                                   cuda_runtime, cuda_driver, no_device, no_device_fix, has_kernels,
                                   has_nccl, nccl_built, nccl_loaded, nccl_files, mpi, thread_level,
                                   instructions, gpus_present, device, device_reason, device_uuid,
                                   transport, without_nccl, devices, peer_memory, fabric_ports,
                                   cores, threads, cpus, numa, shm_bytes, shm_free,
                                   memory_available, leftovers, memlock, open_files, processes,
                                   clock, start_seconds, snapshots)

std::string to_json(const RankFacts& facts) {
  return nlohmann::json(facts).dump();
}

RankFacts from_json(const std::string& text) {
  return nlohmann::json::parse(text).get<RankFacts>();
}

}  // namespace lockstep::doctor
