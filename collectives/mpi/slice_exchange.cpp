#include <lockstep/collectives/mpi/slice_exchange.h>

namespace lockstep::detail {
namespace {

constexpr int kElementsTag = 1;
constexpr int kResultTag = 2;

constexpr int64_t kOneRoundBytes = 4 << 10;  // of a slice

}  // namespace

SliceExchange::SliceExchange(const MpiComm& column, const NodeLayout& layout)
    : layout_(layout), inboxes_(static_cast<size_t>(layout.size())), messages_(column) {}

void SliceExchange::start(const kernels::Reduction& reduction,
                          const std::vector<const void*>& sources, Span result) {
  reduction_ = reduction;
  sources_ = sources;
  result_ = result;
  summed_ = false;
  one_round_ = static_cast<int64_t>(result.bytes()) <= kOneRoundBytes;
  const int64_t own = bytes_of(share(layout_.own_node));
  for (int node = 0; node < nodes(); ++node) {
    if (node == layout_.own_node) {
      continue;
    }
    for (int rank : layout_.nodes[static_cast<size_t>(node)]) {
      auto& inbox = inboxes_[static_cast<size_t>(rank)];
      inbox.resize(static_cast<size_t>(own));
      messages_.receive(inbox.data(), own, node, kElementsTag);
    }
    const Slice theirs = share(node);
    for (const void* source : sources_) {
      messages_.send(static_cast<const char*>(source) + theirs.begin * element_size(),
                     bytes_of(theirs), node, kElementsTag);
    }
  }
}

bool SliceExchange::test() {
  if (!messages_.are_complete()) {
    return false;
  }
  if (summed_) {
    return true;
  }
  sum_own_share();
  summed_ = true;
  if (one_round_) {
    return true;
  }
  const Slice own = share(layout_.own_node);
  for (int node = 0; node < nodes(); ++node) {
    if (node != layout_.own_node) {
      const Slice theirs = share(node);
      messages_.receive(result_.at(theirs.begin), bytes_of(theirs), node, kResultTag);
      messages_.send(result_.at(own.begin), bytes_of(own), node, kResultTag);
    }
  }
  return messages_.are_complete();
}

void SliceExchange::sum_own_share() {
  const Slice own = share(layout_.own_node);
  std::vector<const void*> elements;
  for (const auto& inbox : inboxes_) {
    elements.push_back(inbox.data());
  }
  const std::vector<int>& local = layout_.ranks_of_this_node();
  for (size_t k = 0; k < local.size(); ++k) {
    elements[static_cast<size_t>(local[k])] =
        static_cast<const char*>(sources_[k]) + own.begin * element_size();
  }
  void* destination = result_.at(own.begin);
  kernels::reduce(reduction_, result_.dtype, elements.data(), layout_.size(), result_.dtype,
                  &destination, 1, own.size());
}

}  // namespace lockstep::detail
