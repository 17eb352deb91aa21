#include <lockstep/collectives/mpi/node_layout.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

bool has_fewer(const std::vector<int>& a, const std::vector<int>& b) {
  return a.size() < b.size();
}

}  // namespace

int NodeLayout::size() const {
  size_t ranks = 0;
  for (const auto& node : nodes) {
    ranks += node.size();
  }
  return static_cast<int>(ranks);
}

int NodeLayout::smallest() const {
  return static_cast<int>(std::min_element(nodes.begin(), nodes.end(), has_fewer)->size());
}

int NodeLayout::largest() const {
  return static_cast<int>(std::max_element(nodes.begin(), nodes.end(), has_fewer)->size());
}

bool NodeLayout::in_rank_order() const {
  int next = 0;
  for (const auto& node : nodes) {
    for (int rank : node) {
      if (rank != next++) {
        return false;
      }
    }
  }
  return true;
}

NodeLayout find_nodes(const MpiComm& all, const MpiComm& node) {
  int first = all.rank();  // first rank of this node: `node` is ordered like `all`
  node.broadcast(&first, sizeof first, /*root=*/0);
  std::vector<int> firsts(static_cast<size_t>(all.size()));
  all.all_gather(&first, sizeof first, firsts.data());

  NodeLayout layout;
  layout.local_rank = node.rank();
  std::vector<int> order = firsts;
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  for (int leader : order) {
    if (leader == first) {
      layout.own_node = static_cast<int>(layout.nodes.size());
    }
    layout.nodes.emplace_back();
    for (size_t k = 0; k < firsts.size(); ++k) {
      if (firsts[k] == leader) {
        layout.nodes.back().push_back(static_cast<int>(k));
      }
    }
  }
  return layout;
}

}  // namespace lockstep::detail
