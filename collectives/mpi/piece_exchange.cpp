#include <lockstep/collectives/mpi/piece_exchange.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr int kPieceTag = 5;

}  // namespace

template <typename Take>
void PieceExchange::for_each_rank(int node, int lane, const Take& take) const {
  const std::vector<int>& ranks = layout_.nodes[static_cast<size_t>(node)];
  for (auto index = static_cast<size_t>(lane); index < ranks.size();
       index += static_cast<size_t>(lanes_)) {
    take(ranks[index], index);
  }
}

PieceExchange::PieceExchange(const MpiComm& lane_comm, const NodeLayout& layout)
    : layout_(layout), lanes_(layout.smallest()), messages_(lane_comm) {
  for (int lane = 0; lane < lanes_; ++lane) {
    arrivals_.push_back(arrivals_at(layout_.own_node, lane));
    for (size_t node = 0; node < layout_.nodes.size(); ++node) {
      most_arrivals_ = std::max(most_arrivals_, arrivals_at(static_cast<int>(node), lane).size());
    }
  }
}

std::vector<int> PieceExchange::arrivals_at(int node, int lane) const {
  std::vector<int> ranks;
  for (int other = 0; other < static_cast<int>(layout_.nodes.size()); ++other) {
    if (other != node) {
      for_each_rank(other, lane, [&](int rank, size_t) { ranks.push_back(rank); });
    }
  }
  return ranks;
}

void PieceExchange::start(const std::vector<const void*>& pieces, int64_t bytes, char* arrived) {
  const int lane = layout_.local_rank;
  const int nodes = static_cast<int>(layout_.nodes.size());
  for (int node = 0; node < nodes; ++node) {
    if (node == layout_.own_node) {
      continue;
    }
    for_each_rank(node, lane, [&](int, size_t) {
      messages_.receive(arrived, bytes, node, kPieceTag);
      arrived += bytes;
    });
    for_each_rank(layout_.own_node, lane, [&](int, size_t index) {
      messages_.send(pieces[index], bytes, node, kPieceTag);
    });
  }
}

}  // namespace lockstep::detail
