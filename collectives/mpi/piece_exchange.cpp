#include <lockstep/collectives/mpi/piece_exchange.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr int kPieceTag = 5;

}  // namespace

template <typename Take>
void PieceExchange::for_each_rank(int node, int column, const Take& take) const {
  const std::vector<int>& ranks = layout_.nodes[static_cast<size_t>(node)];
  for (auto index = static_cast<size_t>(column); index < ranks.size();
       index += static_cast<size_t>(columns_)) {
    take(ranks[index], index);
  }
}

PieceExchange::PieceExchange(const MpiComm& column_comm, const NodeLayout& layout)
    : layout_(layout), columns_(layout.smallest()), messages_(column_comm) {
  for (int column = 0; column < columns_; ++column) {
    arrivals_.push_back(arrivals_at(layout_.own_node, column));
    for (size_t node = 0; node < layout_.nodes.size(); ++node) {
      most_arrivals_ = std::max(most_arrivals_, arrivals_at(static_cast<int>(node), column).size());
    }
  }
}

std::vector<int> PieceExchange::arrivals_at(int node, int column) const {
  std::vector<int> ranks;
  for (int other = 0; other < static_cast<int>(layout_.nodes.size()); ++other) {
    if (other != node) {
      for_each_rank(other, column, [&](int rank, size_t) { ranks.push_back(rank); });
    }
  }
  return ranks;
}

void PieceExchange::start(const std::vector<const void*>& pieces, int64_t bytes, char* arrived) {
  const int column = layout_.local_rank;
  const int nodes = static_cast<int>(layout_.nodes.size());
  for (int node = 0; node < nodes; ++node) {
    if (node == layout_.own_node) {
      continue;
    }
    for_each_rank(node, column, [&](int, size_t) {
      messages_.receive(arrived, bytes, node, kPieceTag);
      arrived += bytes;
    });
    for_each_rank(layout_.own_node, column, [&](int, size_t index) {
      messages_.send(pieces[index], bytes, node, kPieceTag);
    });
  }
}

}  // namespace lockstep::detail
