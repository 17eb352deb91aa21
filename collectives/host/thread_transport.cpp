#include <lockstep/collectives/check.h>
#include <lockstep/collectives/host/thread_transport.h>

#include <lockstep/collectives/host/host_transport.h>
#include <lockstep/collectives/impl/transport.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace lockstep::detail {
namespace {

using Blocks = std::vector<std::shared_ptr<SharedMemory>>;

class ThreadTransport final : public HostTransport {
 public:
  explicit ThreadTransport(std::shared_ptr<NodeEngine> engine) : HostTransport(std::move(engine)) {}
  const char* name() const override { return "thread"; }

 private:
  std::shared_ptr<Transport> split_ranks(const std::vector<SplitWish>& wishes) override;
  Blocks share_memory(size_t bytes) override {
    return share_among_threads(bytes,
                               {rank(), size(), [this](const void* own, size_t n, void* all) {
                                  gather({Verb::allocate}, own, n, all);
                                }});
  }
};

std::unique_ptr<NodeGroup> make_group(const Blocks& blocks, int rank) {
  return std::make_unique<NodeGroup>(blocks, rank, NodeGroup::Peers::threads);
}

std::shared_ptr<Transport> make_transport(std::unique_ptr<NodeGroup> group,
                                          const CommunicatorOptions& options) {
  NodeEngine::World world{group->rank(), group->size(), {}};
  world.node_ranks.resize(static_cast<size_t>(world.size));
  std::iota(world.node_ranks.begin(), world.node_ranks.end(), 0);
  return std::make_shared<ThreadTransport>(
      std::make_shared<NodeEngine>(std::move(world), std::move(group), options));
}

std::shared_ptr<Transport> ThreadTransport::split_ranks(const std::vector<SplitWish>& wishes) {
  const SplitWish& own = wishes[static_cast<size_t>(rank())];
  std::vector<SplitWish> members;
  for (const SplitWish& wish : wishes) {
    if (wish.color == own.color) {
      members.push_back(wish);
    }
  }
  std::sort(members.begin(), members.end(), [](const SplitWish& a, const SplitWish& b) {
    return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
  });
  // All ranks share blocks; each group then uses those of its members.
  const Blocks all =
      share_among_threads(NodeGroup::block_bytes(),
                          {rank(), size(), [this](const void* sent, size_t n, void* received) {
                             gather({Verb::split}, sent, n, received);
                           }});
  Blocks blocks;
  int new_rank = 0;
  for (size_t k = 0; k < members.size(); ++k) {
    blocks.push_back(all[static_cast<size_t>(members[k].rank)]);
    if (members[k].rank == rank()) {
      new_rank = static_cast<int>(k);
    }
  }
  std::unique_ptr<NodeGroup> group = make_group(blocks, new_rank);
  const char ready = 1;
  std::vector<char> all_ready(wishes.size());
  gather({Verb::split}, &ready, 1, all_ready.data());
  if (own.color < 0) {
    return nullptr;
  }
  return members.size() == 1 ? make_solo_transport()
                             : make_transport(std::move(group), engine().options());
}

}  // namespace

std::vector<std::shared_ptr<Transport>> make_thread_transports(int size,
                                                               CommunicatorOptions options) {
  LOCKSTEP_CHECK(size >= 1, "Communicator::threads: size is ", size, ", expected 1 or more");
  if (size == 1) {
    return {make_solo_transport()};
  }
  Blocks blocks;
  for (int rank = 0; rank < size; ++rank) {
    blocks.push_back(SharedMemory::for_threads(NodeGroup::block_bytes()));
  }
  std::vector<std::unique_ptr<NodeGroup>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(make_group(blocks, rank));
  }
  std::vector<std::shared_ptr<Transport>> transports;
  for (auto& group : groups) {
    transports.push_back(make_transport(std::move(group), options));
  }
  return transports;
}

}  // namespace lockstep::detail
