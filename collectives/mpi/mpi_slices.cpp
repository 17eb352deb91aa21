#include <lockstep/collectives/mpi/mpi_slices.h>

namespace lockstep::detail {
namespace {

constexpr int kPartialTag = 1;
constexpr int kResultTag = 2;

}  // namespace

MpiSlices::MpiSlices(MpiComm lane) : lane_(std::move(lane)) {
  if (lane_.valid()) {
    node_ = lane_.rank();
    nodes_ = lane_.size();
    inboxes_.resize(static_cast<size_t>(nodes_));
  }
}

void MpiSlices::start(const kernels::Reduction& reduction, c10::ScalarType partial_dtype,
                      const char* partial, c10::ScalarType dtype, char* result, int64_t n) {
  reduction_ = reduction;
  partial_ = {const_cast<char*>(partial), n, partial_dtype};
  result_ = {result, n, dtype};
  summed_ = false;
  const Slice own = share(node_);
  for (int k = 0; k < nodes_; ++k) {
    if (k != node_) {
      auto& inbox = inboxes_[static_cast<size_t>(k)];
      inbox.resize(static_cast<size_t>(own.size() * partial_.element_size()));
      receive(inbox.data(), own.size() * partial_.element_size(), k, kPartialTag);
      send(partial_, share(k), k, kPartialTag);
    }
  }
}

bool MpiSlices::test() {
  if (!requests_are_complete()) {
    return false;
  }
  if (summed_) {
    return true;
  }
  sum_own_share();
  summed_ = true;
  for (int k = 0; k < nodes_; ++k) {
    if (k != node_) {
      const Slice theirs = share(k);
      receive(result_.at(theirs.begin), theirs.size() * result_.element_size(), k, kResultTag);
      send(result_, share(node_), k, kResultTag);
    }
  }
  return requests_are_complete();
}

Slice MpiSlices::share(int node) const {
  return slice_of(partial_.numel, node, nodes_, result_.element_size());
}

void MpiSlices::sum_own_share() {
  const Slice own = share(node_);
  std::vector<const void*> sources;
  for (int k = 0; k < nodes_; ++k) {
    sources.push_back(k == node_ ? partial_.at(own.begin)
                                 : inboxes_[static_cast<size_t>(k)].data());
  }
  void* destination = result_.at(own.begin);
  kernels::reduce(reduction_, partial_.dtype, sources.data(), nodes_, result_.dtype, &destination,
                  1, own.size());
}

void MpiSlices::send(const Span& from, const Slice& slice, int node, int tag) {
  if (slice.size() > 0) {
    requests_.emplace_back();
    lane_.check(
        MPI_Isend(from.at(slice.begin), static_cast<int>(slice.size() * from.element_size()),
                  MPI_BYTE, node, tag, lane_.get(), &requests_.back()),
        "MPI_Isend");
  }
}

void MpiSlices::receive(char* to, int64_t bytes, int node, int tag) {
  if (bytes > 0) {
    requests_.emplace_back();
    lane_.check(
        MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, node, tag, lane_.get(), &requests_.back()),
        "MPI_Irecv");
  }
}

bool MpiSlices::requests_are_complete() {
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
