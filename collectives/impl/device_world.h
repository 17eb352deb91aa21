#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// What choose_transport() must know about a rank.
struct DeviceRank {
  int nccl_version = 0;        // 0: no NCCL on this rank
  bool may_share_gpu = false;  // NCCL_MULTI_RANK_GPU_ENABLE=1
  std::string device_id;
  std::string without_nccl;  // why this rank has no NCCL
  bool blocks_nccl = false;  // NCCL_COMM_BLOCKING=1
};

/// Chooses one transport for all of these ranks. `reason` says why it is not NCCL; it is empty if
/// it is, or if the staged one was asked for. `automatic` chooses NCCL if all ranks can use it
/// together. Throws Error (environment) if NCCL was asked for and cannot be used, or if
/// NCCL_COMM_BLOCKING=1 would take its deadlines away.
struct DeviceChoice {
  DeviceTransport transport;
  std::string reason;
};
DeviceChoice choose_transport(DeviceTransport asked, const std::vector<DeviceRank>& ranks);

/// Makes a communicator of the ranks of `host` for tensors of `device`; it also takes host tensors.
/// One rank alone makes NCCL's if `asked` says so, else a solo one.
/// Collective. The new communicator then owns `host`: do not use `host` for anything else. If the
/// new communicator fails, `on_failure` is called once, from any thread. `without_nccl`: the reason
/// of choose_transport(), the same on every rank.
/// Errors: those of choose_transport(), on every rank; Error (environment) where NCCL cannot start.
struct DeviceWorld {
  Communicator communicator;
  std::string without_nccl;
};
DeviceWorld make_device_world(Communicator host, c10::Device device, const std::string& device_id,
                              DeviceTransport asked, const CommunicatorOptions& options,
                              std::function<void()> on_failure);

}  // namespace lockstep
