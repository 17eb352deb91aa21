#include <lockstep/collectives/mpi_slices.h>

#include <vector>

namespace lockstep {
namespace {

constexpr int kPartialTag = 1;
constexpr int kResultTag = 2;

class MpiSlices final : public SliceExchange {
 public:
  MpiSlices(MpiComm lane, int lanes, bool nodes_are_ranks)
      : lane_(std::move(lane)), lanes_(lanes), nodes_are_ranks_(nodes_are_ranks) {
    if (lane_.valid()) {
      node_ = lane_.rank();
      nodes_ = lane_.size();
      inboxes_.resize(static_cast<size_t>(nodes_));
    }
  }

  int lanes() const override { return lanes_; }
  bool nodes_are_ranks() const override { return nodes_are_ranks_; }

  void start(const kernels::Reduction& reduction, c10::ScalarType partial_dtype,
             const char* partial, c10::ScalarType dtype, char* result, int64_t n) override {
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

  bool test() override {
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

 private:
  Slice share(int node) const {
    return slice_of(partial_.numel, node, nodes_, result_.element_size());
  }

  void sum_own_share() {
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

  void send(const Span& from, const Slice& slice, int node, int tag) {
    if (slice.size() > 0) {
      requests_.emplace_back();
      lane_.check(
          MPI_Isend(from.at(slice.begin), static_cast<int>(slice.size() * from.element_size()),
                    MPI_BYTE, node, tag, lane_.get(), &requests_.back()),
          "MPI_Isend");
    }
  }

  void receive(char* to, int64_t bytes, int node, int tag) {
    if (bytes > 0) {
      requests_.emplace_back();
      lane_.check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, node, tag, lane_.get(),
                            &requests_.back()),
                  "MPI_Irecv");
    }
  }

  bool requests_are_complete() {
    int complete = 0;
    lane_.check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete,
                            MPI_STATUSES_IGNORE),
                "MPI_Testall");
    if (complete != 0) {
      requests_.clear();
    }
    return complete != 0;
  }

  MpiComm lane_;
  int lanes_;
  bool nodes_are_ranks_;
  int node_ = 0;
  int nodes_ = 0;
  kernels::Reduction reduction_;
  Span partial_;
  Span result_;
  bool summed_ = false;
  std::vector<std::vector<char>> inboxes_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

std::unique_ptr<SliceExchange> make_mpi_slices(MpiComm lane, int lanes, bool nodes_are_ranks) {
  return std::make_unique<MpiSlices>(std::move(lane), lanes, nodes_are_ranks);
}

}  // namespace lockstep
