#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/rank_names.h>
#include <lockstep/collectives/nccl/nccl_bootstrap.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace lockstep::detail {
namespace {

std::string encode(const NcclPeer& peer) {
  return c10::str(peer.version, peer.may_share_gpu ? "+" : "-", peer.blocks ? "+" : "-",
                  peer.device_id);
}

NcclPeer decode(const std::string& text) {
  const size_t signs = text.find_first_of("+-");
  return {std::atoi(text.c_str()), text[signs] == '+', text.substr(signs + 2),
          text[signs + 1] == '+'};
}

/// Whether the variable is set to 1, as NCCL reads numbers.
bool is_one(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strtoll(text, nullptr, 0) == 1;
}

/// The ids made by ranks 0, ranks_per_id, 2 * ranks_per_id, ...; each connects its share of the
/// ranks. Throws on every rank if one of them cannot make its id.
std::vector<NcclApi::Id> shared_ids(const NcclParts& parts, const Communicator& host) {
  const int apart = parts.api->takes_several_ids() ? parts.ranks_per_id : host.size();
  const auto make = [&]() -> std::string {
    if (host.rank() % apart != 0) {
      return "";
    }
    NcclApi::Id id{};
    const NcclStatus status = parts.api->make_id(&id);
    LOCKSTEP_CHECK_CODE(status == NcclStatus::success, ExitCode::environment, "NCCL reports ",
                        status_name(status), "; NCCL_DEBUG=INFO says more");
    return {id.begin(), id.end()};
  };
  std::vector<NcclApi::Id> ids;
  for (const std::string& received : Agreement(host).gather("ncclGetUniqueId", make)) {
    if (!received.empty()) {
      std::copy(received.begin(), received.end(), ids.emplace_back().begin());
    }
  }
  return ids;
}

/// The GPU of "UUID@bus/system": NCCL refuses two slices of one, too, although their UUIDs differ.
std::string gpu_of(const std::string& device_id) {
  return device_id.substr(device_id.find('@') + 1);
}

}  // namespace

NcclPeer own_peer(int version, const std::string& device_id) {
  return {version, is_one("NCCL_MULTI_RANK_GPU_ENABLE"), device_id, is_one("NCCL_COMM_BLOCKING")};
}

void require_non_blocking(const std::vector<NcclPeer>& peers) {
  std::vector<int> blocking;
  for (size_t k = 0; k < peers.size(); ++k) {
    if (peers[k].blocks) {
      blocking.push_back(static_cast<int>(k));
    }
  }
  if (!blocking.empty()) {
    throw Error(rank_names(blocking) + (blocking.size() == 1 ? " has" : " have") +
                    " NCCL_COMM_BLOCKING=1 in its environment: NCCL's calls would wait for other "
                    "ranks, and no deadline would end that; unset it on every rank, or use "
                    "LOCKSTEP_TRANSPORT=staged",
                ExitCode::environment, blocking);
  }
}

std::string nccl_refusal(const std::vector<NcclPeer>& peers) {
  std::map<std::string, size_t> owner;
  for (size_t k = 0; k < peers.size(); ++k) {
    const NcclPeer& peer = peers[k];
    if (peer.version != peers[0].version) {
      return c10::str("rank 0 has NCCL ", nccl_version_text(peers[0].version), ", rank ", k, " ",
                      nccl_version_text(peer.version), "; install the same on all nodes");
    }
    const std::string gpu = gpu_of(peer.device_id);
    const std::string name = gpu.substr(0, gpu.find('/'));
    const auto place = owner.emplace(gpu, k);
    const bool shares = !place.second;
    if (shares && peer.version < NcclApi::kSharesGpu) {
      return c10::str("ranks ", place.first->second, " and ", k, " use one GPU (", name,
                      "), which NCCL ", nccl_version_text(peer.version), " refuses and ",
                      nccl_version_text(NcclApi::kSharesGpu),
                      " allows; start fewer ranks on that node, or use the staged transport");
    }
    if (shares && !(peer.may_share_gpu && peers[place.first->second].may_share_gpu)) {
      return c10::str("ranks ", place.first->second, " and ", k, " use one GPU (", name,
                      "); start fewer ranks on that node, or set NCCL_MULTI_RANK_GPU_ENABLE=1 "
                      "for all of them, or use the staged transport");
    }
  }
  return {};
}

std::shared_ptr<NcclComm> bootstrap_nccl(const NcclParts& parts) {
  Communicator host = parts.host;
  std::vector<NcclPeer> peers;
  for (const std::string& text :
       host.all_gather_bytes(encode(own_peer(parts.api->version(), parts.device_id)))) {
    peers.push_back(decode(text));
  }
  const std::string refusal = nccl_refusal(peers);
  LOCKSTEP_CHECK_CODE(refusal.empty(), ExitCode::environment, "rank ", host.rank(), " of ",
                      host.size(), ": ", refusal);
  require_non_blocking(peers);
  const auto on_device = parts.lane->enter_thread();
  return NcclComm::init(parts.api, shared_ids(parts, host), {host.rank(), host.size()},
                        {parts.options.timeout, parts.abort_deadline}, [] {});
}

}  // namespace lockstep::detail
