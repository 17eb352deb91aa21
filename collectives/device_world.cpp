#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/device_world.h>

#include <lockstep/collectives/device/staged_transport.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/collectives/nccl/nccl_bootstrap.h>
#include <lockstep/collectives/nccl/nccl_transport.h>

#include <sstream>

namespace lockstep {
namespace {

DeviceRank this_rank(const std::string& device_id) {
  DeviceRank own;
  try {
    own.nccl_version = detail::load_nccl()->version();
  } catch (const Error& error) {
    own.without_nccl = error.what();
  }
  const detail::NcclPeer peer = detail::own_peer(own.nccl_version, device_id);
  own.may_share_gpu = peer.may_share_gpu;
  own.blocks_nccl = peer.blocks;
  own.device_id = device_id;
  return own;
}

std::string encode(const DeviceRank& rank) {
  return c10::str(rank.nccl_version, " ", rank.may_share_gpu, " ", rank.blocks_nccl, " ",
                  rank.device_id, " ", rank.without_nccl);
}

DeviceRank decode(const std::string& text) {
  DeviceRank rank;
  std::istringstream in(text);
  in >> rank.nccl_version >> rank.may_share_gpu >> rank.blocks_nccl >> rank.device_id;
  std::getline(in >> std::ws, rank.without_nccl);
  return rank;
}

std::string refusal(const std::vector<DeviceRank>& ranks,
                    const std::vector<detail::NcclPeer>& peers) {
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (ranks[k].nccl_version == 0) {
      return c10::str("rank ", k, " has none: ", ranks[k].without_nccl);
    }
  }
  return detail::nccl_refusal(peers);
}

}  // namespace

DeviceChoice choose_transport(DeviceTransport asked, const std::vector<DeviceRank>& ranks) {
  if (asked == DeviceTransport::staged) {
    return {DeviceTransport::staged, ""};
  }
  std::vector<detail::NcclPeer> peers;
  for (const DeviceRank& rank : ranks) {
    peers.push_back({rank.nccl_version, rank.may_share_gpu, rank.device_id, rank.blocks_nccl});
  }
  const std::string reason = refusal(ranks, peers);
  LOCKSTEP_CHECK_CODE(reason.empty() || asked == DeviceTransport::automatic, ExitCode::environment,
                      "NCCL was asked for, but ", reason);
  if (reason.empty()) {
    detail::require_non_blocking(peers);
  }
  return {reason.empty() ? DeviceTransport::nccl : DeviceTransport::staged, reason};
}

DeviceWorld make_device_world(Communicator host, c10::Device device, const std::string& device_id,
                              DeviceTransport asked, const CommunicatorOptions& options,
                              std::function<void()> on_failure) {
  if (host.size() == 1 && asked != DeviceTransport::nccl) {
    return {Communicator(detail::make_solo_transport(device)), ""};
  }
  std::vector<DeviceRank> ranks;
  for (const std::string& text : host.all_gather_bytes(encode(this_rank(device_id)))) {
    ranks.push_back(decode(text));
  }
  const DeviceChoice choice = choose_transport(asked, ranks);
  switch (choice.transport) {
    case DeviceTransport::staged: {
      detail::StagedParts parts{detail::make_device_lane(device), detail::make_device_lane(device),
                                host, options.timeout};
      return {Communicator(detail::make_staged_transport(std::move(parts))), choice.reason};
    }
    case DeviceTransport::nccl: {
      detail::NcclParts parts{detail::load_nccl(), detail::make_device_lane(device), host,
                              device_id, options};
      parts.on_failure = std::move(on_failure);
      return {Communicator(detail::make_nccl_transport(std::move(parts))), ""};
    }
    case DeviceTransport::automatic:
      break;
  }
  throw Error("choose_transport() chose no transport");
}

}  // namespace lockstep
