#include <lockstep/collectives/mpi/slice_exchange.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr int kElementsTag = 1;
constexpr int kResultTag = 2;

constexpr int64_t kOneRoundBytes = 4 << 10;  // of a slice

}  // namespace

SliceExchange::SliceExchange(const MpiComm& lane, const NodeLayout& layout)
    : lane_(lane), layout_(layout), inboxes_(static_cast<size_t>(layout.size())) {}

void SliceExchange::start(const kernels::Reduction& reduction,
                          const std::vector<const void*>& sources, Span result) {
  reduction_ = reduction;
  sources_ = sources;
  result_ = result;
  summed_ = false;
  one_round_ = static_cast<int64_t>(result.bytes()) <= kOneRoundBytes;
  const int64_t own = share(layout_.own_node).size();
  for (int node = 0; node < nodes(); ++node) {
    if (node == layout_.own_node) {
      continue;
    }
    for (int rank : layout_.nodes[static_cast<size_t>(node)]) {
      auto& inbox = inboxes_[static_cast<size_t>(rank)];
      inbox.resize(static_cast<size_t>(own * element_size()));
      receive(inbox.data(), own, node, kElementsTag);
    }
    const Slice theirs = share(node);
    for (const void* source : sources_) {
      send(static_cast<const char*>(source) + theirs.begin * element_size(), theirs.size(), node,
           kElementsTag);
    }
  }
}

bool SliceExchange::test() {
  if (!requests_are_complete()) {
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
      receive(result_.at(theirs.begin), theirs.size(), node, kResultTag);
      send(result_.at(own.begin), own.size(), node, kResultTag);
    }
  }
  return requests_are_complete();
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

void SliceExchange::send(const char* from, int64_t elements, int node, int tag) {
  const int64_t bytes = elements * element_size();
  for (int64_t begin = 0; begin < bytes; begin += kEagerBytes) {
    requests_.emplace_back();
    lane_.check(MPI_Isend(from + begin, static_cast<int>(std::min(kEagerBytes, bytes - begin)),
                          MPI_BYTE, node, tag, lane_.get(), &requests_.back()),
                "MPI_Isend");
  }
}

void SliceExchange::receive(char* to, int64_t elements, int node, int tag) {
  const int64_t bytes = elements * element_size();
  for (int64_t begin = 0; begin < bytes; begin += kEagerBytes) {
    requests_.emplace_back();
    lane_.check(MPI_Irecv(to + begin, static_cast<int>(std::min(kEagerBytes, bytes - begin)),
                          MPI_BYTE, node, tag, lane_.get(), &requests_.back()),
                "MPI_Irecv");
  }
}

bool SliceExchange::requests_are_complete() {
  int complete = 0;
  lane_.check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
  if (complete != 0) {
    requests_.clear();
  }
  return complete != 0;
}

}  // namespace lockstep::detail
