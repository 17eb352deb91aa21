#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/device_world.h>
#include <lockstep/collectives/impl/nccl_api.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Why so many ranks of one machine, rank k on device k modulo `devices`, cannot meet over the NCCL
/// that `nccl` describes; empty where they can.
inline std::string why_not_nccl(int ranks, int devices, const DeviceRank& nccl) {
  std::vector<DeviceRank> places(static_cast<size_t>(ranks), nccl);
  for (int rank = 0; rank < ranks; ++rank) {
    places[static_cast<size_t>(rank)].device_id = "GPU-" + std::to_string(rank % devices);
  }
  return choose_transport(DeviceTransport::automatic, places).reason;
}

/// Why the ranks of this program cannot meet over the transport that LOCKSTEP_TRANSPORT asks for;
/// empty where they can. Only NCCL asks for anything: a GPU for each rank, or one that lets itself
/// be shared.
inline std::string why_not_transport() {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  const int ranks = std::atoi(variable("LOCKSTEP_TEST_RANKS").c_str());
  if (variable("LOCKSTEP_TRANSPORT") != "nccl" || ranks < 2) {
    return {};
  }
  DeviceRank here;
  try {
    here.nccl_version = detail::load_nccl()->version();
  } catch (const Error& error) {
    here.without_nccl = error.what();
  }
  here.may_share_gpu = variable("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  const int devices = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
  const std::string reason = why_not_nccl(ranks, devices, here);
  return reason.empty() ? "" : "no test was run over NCCL: " + reason;
}

}  // namespace lockstep::testing
