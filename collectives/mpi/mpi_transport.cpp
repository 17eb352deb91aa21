#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/mpi/mpi_transport.h>

#include <lockstep/collectives/host/host_transport.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/collectives/mpi/mpi_inter_node.h>

#include <algorithm>
#include <numeric>

namespace lockstep::detail {
namespace {

using Blocks = std::vector<std::shared_ptr<SharedMemory>>;

/// The MPI communicators of one group of ranks.
struct MpiRanks {
  std::shared_ptr<const MpiComm> all;
  MpiComm node;
  std::shared_ptr<std::atomic<bool>> failed;

  /// Memory of this node's ranks. Throws on every rank of every node if one rank fails.
  Blocks share_memory(size_t bytes) const {
    Blocks blocks;
    std::string reason;
    try {
      blocks = share_among_processes(
          bytes, {node.rank(), node.size(), [this](const void* own, size_t n, void* gathered) {
                    node.all_gather(own, n, gathered);
                  }});
    } catch (const Error& error) {
      reason = error.what();
    }
    LOCKSTEP_CHECK_CODE(all->all_agree(reason.empty()), ExitCode::environment,
                        reason.empty() ? c10::str("rank ", all->rank(), ": another node cannot ",
                                                  "share memory among its ranks")
                                       : reason);
    return blocks;
  }
};

class MpiTransport final : public HostTransport {
 public:
  MpiTransport(MpiRanks ranks, std::shared_ptr<NodeEngine> engine)
      : HostTransport(std::move(engine)), ranks_(std::move(ranks)) {}
  const char* name() const override { return "mpi"; }

 private:
  std::shared_ptr<Transport> split_ranks(const std::vector<SplitWish>& wishes) override {
    const SplitWish& own = wishes[static_cast<size_t>(rank())];
    MpiComm part = MpiComm::split(ranks_.all->get(),
                                  own.color < 0 ? MpiComm::kNoColor : static_cast<int>(own.color),
                                  static_cast<int>(own.key));
    return part.valid() ? make_mpi_transport(std::move(part), engine().options(), ranks_.failed)
                        : nullptr;
  }
  Blocks share_memory(size_t bytes) override { return ranks_.share_memory(bytes); }

  MpiRanks ranks_;
};

std::unique_ptr<NodeGroup> make_group(const MpiRanks& ranks) {
  auto group = std::make_unique<NodeGroup>(ranks.share_memory(NodeGroup::block_bytes()),
                                           ranks.node.rank(), NodeGroup::Peers::processes);
  ranks.node.barrier();
  group->watch_peers();
  return group;
}

}  // namespace

std::shared_ptr<Transport> make_mpi_transport(MpiComm comm, CommunicatorOptions options,
                                              std::shared_ptr<std::atomic<bool>> failed) {
  MpiComm node = MpiComm::node_of(comm.get());
  return make_mpi_transport(std::move(comm), std::move(node), options, std::move(failed));
}

std::shared_ptr<Transport> make_mpi_transport(MpiComm comm, MpiComm node,
                                              CommunicatorOptions options,
                                              std::shared_ptr<std::atomic<bool>> failed) {
  if (comm.size() == 1) {
    return make_solo_transport();
  }
  MpiRanks ranks{std::make_shared<const MpiComm>(std::move(comm)), std::move(node), failed};
  const NodeLayout layout = find_nodes(*ranks.all, ranks.node);
  NodeEngine::World world{ranks.all->rank(), ranks.all->size(), layout.ranks_of_this_node(),
                          ranks.all->job_ranks()};
  std::unique_ptr<NodeGroup> group = make_group(ranks);
  auto inter_node = layout.nodes.size() > 1 ? make_mpi_inter_node(*ranks.all, layout) : nullptr;
  auto engine = std::make_shared<NodeEngine>(std::move(world), std::move(group), options,
                                             std::move(inter_node));
  engine->on_failure([failed = std::move(failed)] { failed->store(true); });
  engine->leave_with_the_process();
  // MPI may have returned from a collective while a peer in it still needs this rank's messages.
  engine->on_check([all = ranks.all] { all->progress(); });
  return std::make_shared<MpiTransport>(std::move(ranks), std::move(engine));
}

}  // namespace lockstep::detail
