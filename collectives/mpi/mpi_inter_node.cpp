#include <lockstep/collectives/mpi/mpi_inter_node.h>

#include <lockstep/collectives/mpi/mpi_signs.h>
#include <lockstep/collectives/mpi/mpi_slices.h>
#include <lockstep/collectives/mpi/piece_exchange.h>

#include <algorithm>
#include <chrono>

namespace lockstep::detail {
namespace {

/// The bytes of one piece, over all ranks.
constexpr int64_t kPieceBytes = int64_t{8} << 20;

/// A collective that MPI carries out over all ranks, piece by piece.
class MpiStep : public CollectiveStep {
 public:
  bool reduce(int64_t chunk, int slot) final {
    if (!running_) {
      start(chunk, request_);
      running_ = true;
    }
    running_ = !comm_.test(request_);
    return !running_;
  }

 protected:
  MpiStep(const MpiComm& comm, int64_t chunks)
      : CollectiveStep(chunks, /*staged=*/false, /*waits_for_peers=*/false), comm_(comm) {}
  virtual void start(int64_t chunk, MpiRequest& request) = 0;

  const MpiComm& comm_;

 private:
  MpiRequest request_ = 0;
  bool running_ = false;
};

class MpiBarrier final : public MpiStep {
 public:
  explicit MpiBarrier(const MpiComm& comm) : MpiStep(comm, /*chunks=*/1) {}

 private:
  void start(int64_t chunk, MpiRequest& request) override { comm_.ibarrier(request); }
};

class MpiBroadcast final : public MpiStep {
 public:
  MpiBroadcast(const MpiComm& comm, Span tensor, int root)
      : MpiStep(comm, chunk_count(static_cast<int64_t>(tensor.bytes()), kPieceBytes)),
        tensor_(tensor),
        root_(root) {
    touches(0, tensor.data, tensor.bytes());
  }

 private:
  void start(int64_t chunk, MpiRequest& request) override {
    const Slice part = chunk_of(static_cast<int64_t>(tensor_.bytes()), chunk, kPieceBytes);
    comm_.ibroadcast(tensor_.data + part.begin, static_cast<int>(part.size()), root_, request);
  }

  Span tensor_;
  int root_;
};

/// Each rank receives its block of every rank and sums these in rank order, piece by piece. Each
/// byte is sent once: the least that a sum in rank order allows.
class MpiReduceScatter final : public CollectiveStep {
 public:
  MpiReduceScatter(const MpiComm& comm, Span output, Span input,
                   const kernels::Reduction& reduction)
      : CollectiveStep(chunk_count(output.numel, piece_elements(comm, output)), /*staged=*/false,
                       /*waits_for_peers=*/false),
        rank_(comm.rank()),
        ranks_(comm.size()),
        output_(output),
        input_(input),
        reduction_(reduction),
        piece_elements_(piece_elements(comm, output)),
        messages_(comm),
        received_(static_cast<size_t>(ranks_)) {
    touches(0, output.data, output.bytes());
    touches(1, input.data, input.bytes());
  }

  bool reduce(int64_t chunk, int slot) override {
    const Slice part = chunk_of(output_.numel, chunk, piece_elements_);
    if (!started_) {
      start(part);
      started_ = true;
    }
    if (!messages_.are_complete()) {
      return false;
    }
    started_ = false;
    std::vector<const void*> sources;
    sources.reserve(static_cast<size_t>(ranks_));
    for (int k = 0; k < ranks_; ++k) {
      sources.push_back(k == rank_ ? input_.at(k * output_.numel + part.begin)
                                   : received_[static_cast<size_t>(k)].data());
    }
    void* destination = output_.at(part.begin);
    kernels::reduce(reduction_, input_.dtype, sources.data(), ranks_, output_.dtype, &destination,
                    1, part.size());
    return true;
  }

 private:
  static constexpr int kTag = 1;

  static int64_t piece_elements(const MpiComm& comm, const Span& block) {
    return std::max<int64_t>(4096, kPieceBytes / comm.size()) / block.element_size();
  }

  void start(const Slice& part) {
    const int64_t bytes = part.size() * output_.element_size();
    for (int distance = 1; distance < ranks_; ++distance) {  // not all to the same rank at once
      const int from = (rank_ + ranks_ - distance) % ranks_;
      const int to = (rank_ + distance) % ranks_;
      auto& inbox = received_[static_cast<size_t>(from)];
      inbox.resize(static_cast<size_t>(bytes));
      messages_.receive(inbox.data(), bytes, from, kTag);
      messages_.send(input_.at(to * output_.numel + part.begin), bytes, to, kTag);
    }
  }

  const int rank_;
  const int ranks_;
  const Span output_;
  const Span input_;
  const kernels::Reduction reduction_;
  const int64_t piece_elements_;
  EagerMessages messages_;
  std::vector<std::vector<char>> received_;  // one of each rank
  bool started_ = false;
};

class MpiInterNode final : public InterNode {
 public:
  MpiInterNode(const MpiComm& all, const NodeLayout& layout)
      : all_(MpiComm::duplicate(all.get())),
        calls_comm_(MpiComm::duplicate(all.get())),
        calls_(static_cast<size_t>(all.size())),
        signs_(all, layout),
        layout_(layout),
        column_(MpiComm::split(
            all.get(),
            layout.local_rank < layout.smallest() ? layout.local_rank : MpiComm::kNoColor,
            /*key=*/layout.own_node)),
        slices_(column_, layout_),
        pieces_(column_, layout_) {}
  MpiInterNode(const MpiInterNode&) = delete;
  MpiInterNode& operator=(const MpiInterNode&) = delete;

  bool gather_calls(const CollectiveCall& own, std::vector<CollectiveCall>& all) override {
    if (!gathering_) {
      own_call_ = own;
      calls_comm_.iall_gather(&own_call_, static_cast<int>(sizeof own_call_), calls_.data(),
                              request_);
      gathering_ = true;
    }
    if (!calls_comm_.test(request_)) {
      return false;
    }
    gathering_ = false;
    all = calls_;
    return true;
  }

  void progress() override { calls_comm_.progress(); }

  void tell(const std::string& text) override { signs_.tell(text); }
  void tell_at_last(const std::string& text) noexcept override {
    constexpr std::chrono::milliseconds kLongest(200);
    try {
      signs_.tell(text);
      const auto end = std::chrono::steady_clock::now() + kLongest;
      while (!signs_.progress() && std::chrono::steady_clock::now() < end) {
      }
    } catch (const std::exception&) {
      return;  // the network is gone as well
    }
  }
  std::vector<std::pair<int, std::string>> heard() override {
    signs_.progress();
    return signs_.heard();
  }

  int columns() const override { return layout_.smallest(); }
  void reduce_slice(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
                    Span result) override {
    slices_.start(reduction, sources, result);
  }
  bool slice_is_reduced() override { return slices_.test(); }

  const std::vector<std::vector<int>>& arrivals() const override { return pieces_.arrivals(); }
  size_t most_arrivals() const override { return pieces_.most_arrivals(); }
  void exchange_pieces(const std::vector<const void*>& pieces, int64_t bytes,
                       char* arrived) override {
    pieces_.start(pieces, bytes, arrived);
  }
  bool pieces_have_arrived() override { return pieces_.test(); }

  bool scatters_cheaply(at::ScalarType dtype) const override {
    const auto nodes = static_cast<int64_t>(layout_.nodes.size());
    const auto element = static_cast<int64_t>(c10::elementSize(dtype));
    const auto sum = static_cast<int64_t>(c10::elementSize(kernels::sum_dtype(dtype)));
    // Per element a node sends its ranks' elements to all other nodes; in a chain, sum and result.
    return !layout_.in_rank_order() ||
           (nodes - 1) * layout_.largest() * element <= nodes * (sum + element);
  }
  std::unique_ptr<CollectiveStep> reduce_scatter(Span output, Span input,
                                                 const kernels::Reduction& reduction) override {
    return std::make_unique<MpiReduceScatter>(all_, output, input, reduction);
  }
  std::unique_ptr<CollectiveStep> broadcast(Span tensor, int root) override {
    return std::make_unique<MpiBroadcast>(all_, tensor, root);
  }
  std::unique_ptr<CollectiveStep> barrier() override { return std::make_unique<MpiBarrier>(all_); }

 private:
  MpiComm all_;
  MpiComm calls_comm_;
  CollectiveCall own_call_;
  std::vector<CollectiveCall> calls_;
  MpiRequest request_ = 0;
  bool gathering_ = false;
  MpiSigns signs_;
  const NodeLayout layout_;
  const MpiComm column_;
  MpiSlices slices_;
  PieceExchange pieces_;
};

}  // namespace

std::unique_ptr<InterNode> make_mpi_inter_node(const MpiComm& all, const NodeLayout& layout) {
  return std::make_unique<MpiInterNode>(all, layout);
}

}  // namespace lockstep::detail
