#pragma once

#include <lockstep/collectives/mpi/find_mpi.h>
#include <lockstep/collectives/mpi/mpi_transport.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mpi_world.h"

namespace lockstep::testing {

using Layout = std::vector<int>;  // the node of each rank

/// Every way to put the ranks on nodes, numbered in the order of their first rank.
inline std::vector<Layout> all_layouts(int ranks) {
  std::vector<Layout> layouts = {{}};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Layout> longer;
    for (const Layout& layout : layouts) {
      int nodes = 0;
      for (int node : layout) {
        nodes = std::max(nodes, node + 1);
      }
      for (int node = 0; node <= nodes; ++node) {
        longer.push_back(layout);
        longer.back().push_back(node);
      }
    }
    layouts = std::move(longer);
  }
  return layouts;
}

inline std::string text_of(const Layout& layout) {
  std::string text = "nodes of the ranks:";
  for (int node : layout) {
    text += " " + std::to_string(node);
  }
  return text;
}

/// All ranks, as if they were on these nodes.
inline Communicator on_nodes(const Layout& layout, const CommunicatorOptions& options = {}) {
  const int node = layout[static_cast<size_t>(world().rank())];
  const detail::MpiHandle all = detail::load_mpi().world();
  return Communicator(detail::make_mpi_transport(
      detail::MpiComm::duplicate(all), detail::MpiComm::split(all, node, world().rank()), options,
      std::make_shared<std::atomic<bool>>(false)));
}

}  // namespace lockstep::testing
