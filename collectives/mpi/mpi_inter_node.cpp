#include <lockstep/collectives/mpi/mpi_inter_node.h>

#include <lockstep/collectives/mpi/mpi_signs.h>
#include <lockstep/collectives/mpi/mpi_slices.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace lockstep::detail {
namespace {

/// What all ranks together send or receive in one piece.
constexpr int64_t kPieceBytes = int64_t{8} << 20;

/// A collective that MPI carries whole, piece by piece.
class MpiStep : public CollectiveStep {
 public:
  bool reduce(int64_t chunk, int slot) final {
    if (!running_) {
      start(chunk, &request_);
      running_ = true;
    }
    int complete = 0;
    comm_.check(MPI_Test(&request_, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    if (complete == 0) {
      return false;
    }
    running_ = false;
    finish(chunk);
    return true;
  }

 protected:
  MpiStep(const MpiComm& comm, int64_t chunks)
      : CollectiveStep(chunks, /*staged=*/false, /*waits_for_peers=*/false), comm_(comm) {}
  virtual void start(int64_t chunk, MPI_Request* request) = 0;
  virtual void finish(int64_t chunk) {}

  const MpiComm& comm_;

 private:
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool running_ = false;
};

class MpiBarrier final : public MpiStep {
 public:
  explicit MpiBarrier(const MpiComm& comm) : MpiStep(comm, /*chunks=*/1) {}

 private:
  void start(int64_t chunk, MPI_Request* request) override {
    comm_.check(MPI_Ibarrier(comm_.get(), request), "MPI_Ibarrier");
  }
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
  void start(int64_t chunk, MPI_Request* request) override {
    const Slice part = chunk_of(static_cast<int64_t>(tensor_.bytes()), chunk, kPieceBytes);
    comm_.check(MPI_Ibcast(tensor_.data + part.begin, static_cast<int>(part.size()), MPI_BYTE,
                           root_, comm_.get(), request),
                "MPI_Ibcast");
  }

  Span tensor_;
  int root_;
};

/// A piece of each rank's block, next to each other.
class MpiBlocks : public MpiStep {
 protected:
  MpiBlocks(const MpiComm& comm, const Span& block)
      : MpiStep(comm, chunk_count(block.numel, piece_elements(comm, block))),
        ranks_(comm.size()),
        block_(block),
        piece_elements_(piece_elements(comm, block)) {}

  Slice part_of(int64_t chunk) const { return chunk_of(block_.numel, chunk, piece_elements_); }
  int64_t bytes_of(const Slice& part) const { return part.size() * block_.element_size(); }
  int64_t block_bytes() const { return static_cast<int64_t>(block_.bytes()); }

  const int ranks_;
  const Span block_;  // one rank's

 private:
  static int64_t piece_elements(const MpiComm& comm, const Span& block) {
    return std::max<int64_t>(4096, kPieceBytes / comm.size()) / block.element_size();
  }
  const int64_t piece_elements_;
};

class MpiAllGather final : public MpiBlocks {
 public:
  MpiAllGather(const MpiComm& comm, Span output, Span input)
      : MpiBlocks(comm, input), output_(output) {
    touches(0, output.data, output.bytes());
    touches(1, input.data, input.bytes());
  }

 private:
  void start(int64_t chunk, MPI_Request* request) override {
    const Slice part = part_of(chunk);
    const int bytes = static_cast<int>(bytes_of(part));
    received_.resize(static_cast<size_t>(ranks_) * static_cast<size_t>(bytes));
    comm_.check(MPI_Iallgather(block_.at(part.begin), bytes, MPI_BYTE, received_.data(), bytes,
                               MPI_BYTE, comm_.get(), request),
                "MPI_Iallgather");
  }

  void finish(int64_t chunk) override {
    const Slice part = part_of(chunk);
    const int64_t bytes = bytes_of(part);
    for (int k = 0; k < ranks_ && bytes > 0; ++k) {
      std::memcpy(output_.data + k * block_bytes() + part.begin * block_.element_size(),
                  received_.data() + k * bytes, static_cast<size_t>(bytes));
    }
  }

  Span output_;
  std::vector<char> received_;
};

class MpiReduceScatter final : public MpiBlocks {
 public:
  MpiReduceScatter(const MpiComm& comm, Span output, Span input,
                   const kernels::Reduction& reduction)
      : MpiBlocks(comm, output), input_(input), reduction_(reduction) {
    touches(0, output.data, output.bytes());
    touches(1, input.data, input.bytes());
  }

 private:
  void start(int64_t chunk, MPI_Request* request) override {
    const Slice part = part_of(chunk);
    const int64_t bytes = bytes_of(part);
    sent_.resize(static_cast<size_t>(ranks_ * bytes));
    received_.resize(sent_.size());
    for (int k = 0; k < ranks_ && bytes > 0; ++k) {
      std::memcpy(sent_.data() + k * bytes, input_.at(k * block_.numel + part.begin),
                  static_cast<size_t>(bytes));
    }
    const int count = static_cast<int>(bytes);
    comm_.check(MPI_Ialltoall(sent_.data(), count, MPI_BYTE, received_.data(), count, MPI_BYTE,
                              comm_.get(), request),
                "MPI_Ialltoall");
  }

  void finish(int64_t chunk) override {
    const Slice part = part_of(chunk);
    std::vector<const void*> sources;
    for (int k = 0; k < ranks_; ++k) {
      sources.push_back(received_.data() + k * bytes_of(part));
    }
    void* destination = block_.at(part.begin);
    kernels::reduce(reduction_, input_.dtype, sources.data(), ranks_, block_.dtype, &destination, 1,
                    part.size());
  }

  Span input_;
  kernels::Reduction reduction_;
  std::vector<char> sent_;
  std::vector<char> received_;
};

class MpiInterNode final : public InterNode {
 public:
  MpiInterNode(const MpiComm& all, const NodeLayout& layout)
      : all_(MpiComm::duplicate(all.get())),
        calls_comm_(MpiComm::duplicate(all.get())),
        calls_(static_cast<size_t>(all.size())),
        signs_(all, layout),
        slices_(all, layout) {}

  bool gather_calls(const CollectiveCall& own, std::vector<CollectiveCall>& all) override {
    constexpr int kBytes = static_cast<int>(sizeof(CollectiveCall));
    if (!gathering_) {
      own_call_ = own;
      calls_comm_.check(MPI_Iallgather(&own_call_, kBytes, MPI_BYTE, calls_.data(), kBytes,
                                       MPI_BYTE, calls_comm_.get(), &request_),
                        "MPI_Iallgather");
      gathering_ = true;
    }
    int complete = 0;
    calls_comm_.check(MPI_Test(&request_, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    if (complete != 0) {
      gathering_ = false;
      all = calls_;
    }
    return complete != 0;
  }

  void progress() override {
    int found = 0;
    calls_comm_.check(
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, calls_comm_.get(), &found, MPI_STATUS_IGNORE),
        "MPI_Iprobe");
  }

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

  int lanes() const override { return slices_.lanes(); }
  void reduce_slice(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
                    Span result) override {
    slices_.start(reduction, sources, result);
  }
  bool slice_is_reduced() override { return slices_.test(); }

  std::unique_ptr<CollectiveStep> reduce_scatter(Span output, Span input,
                                                 const kernels::Reduction& reduction) override {
    return std::make_unique<MpiReduceScatter>(all_, output, input, reduction);
  }
  std::unique_ptr<CollectiveStep> all_gather(Span output, Span input) override {
    return std::make_unique<MpiAllGather>(all_, output, input);
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
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool gathering_ = false;
  MpiSigns signs_;
  MpiSlices slices_;
};

}  // namespace

std::unique_ptr<InterNode> make_mpi_inter_node(const MpiComm& all, const NodeLayout& layout) {
  return std::make_unique<MpiInterNode>(all, layout);
}

}  // namespace lockstep::detail
