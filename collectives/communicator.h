#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator_options.h>
#include <lockstep/collectives/reduce_op.h>
#include <lockstep/collectives/work.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Communicator;

namespace detail {
class ClosureCalls;
class GraphCapture;
class Transport;
std::optional<ClosureCalls> closure_calls(const Communicator& communicator);
Communicator with_closure_calls(const Communicator& world);
std::string graph_capture_refusal(const Communicator& communicator);
GraphCapture& graph_capture(const Communicator& communicator);
bool rounds_at_each_rank(const Communicator& communicator);
}  // namespace detail

/// A group of ranks, and the collectives among them.
///
/// Ranks: every rank of the group must call each collective (and split() and allocate()), in the
/// same order. Threads: one thread at a time. Copies are cheap and refer to the same communicator.
/// Tensors: dense, contiguous, on the communicator's device. Hosts sum fp16 and bf16 in fp32 and
/// round once; NCCL rounds at each rank. Results: the same bits on every rank and at any timing.
/// A tensor from allocate() is reduced in place where the ranks share memory; any other tensor is
/// copied in and out. With a world of size 1, collectives return at once and change no values.
/// Gradients: none. A tensor of autograd's graph is refused while grad mode is on: pass detach(),
/// or call the functions of collectives/with_gradients.h. Errors: Error for misuse,
/// CommunicationError for a lost or late peer. The message names the rank, the collective and its
/// sequence number.
class Communicator {
 public:
  /// A world of one rank.
  static Communicator solo();
  /// A world of `size` ranks that are threads of this process; element i of the result is for
  /// thread i. For tests and simulation; MPI is not used.
  static std::vector<Communicator> threads(int size, CommunicatorOptions options = {});

  explicit Communicator(std::shared_ptr<detail::Transport> transport);

  int rank() const;
  int size() const;
  /// This rank's number among the ranks that share its memory (the ranks of its node), and how many
  /// there are.
  int local_rank() const;
  int local_size() const;
  /// "solo", "thread", "mpi", ...
  std::string transport_name() const;

  /// tensor = the reduction of all ranks' tensors. Floating and integer dtypes; avg for floating
  /// dtypes only.
  Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum()) const;
  /// output (n elements) = this rank's share of the reduction of all ranks' inputs (size * n
  /// elements each). If output is this share of input, the rest of input is undefined afterwards.
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                      ReduceOp op = ReduceOp::sum()) const;
  /// output (size * n elements) = all ranks' inputs (n elements each), in rank order.
  Work all_gather(const at::Tensor& output, const at::Tensor& input) const;
  /// tensor = the tensor of rank `root`. Any dtype.
  Work broadcast(const at::Tensor& tensor, int root = 0) const;
  /// Completes once every rank has called barrier().
  Work barrier() const;

  /// Makes one communicator per color; its ranks are ordered by (key, rank). A rank with a negative
  /// color must call split() too, but gets no communicator: valid() of its result is false.
  [[nodiscard]] Communicator split(int color, int key = 0) const;
  bool valid() const { return transport_ != nullptr; }

  /// A zeroed one-dimensional tensor in the memory that this transport reduces fastest (on the
  /// host: a shared buffer). Every rank must pass the same numel and dtype. The memory is freed
  /// with the last tensor that uses it.
  [[nodiscard]] at::Tensor allocate(int64_t numel, at::ScalarType dtype) const;

  /// Advances pending collectives without blocking.
  void progress() const;

  // Blocking calls of what ranks may have different amounts of. The bytes may be a text.

  /// The rows (dimension 0) of all ranks, in rank order, in a new tensor. Ranks may have different
  /// numbers of rows, also none; dtype and the other dimensions are equal. Any strides.
  [[nodiscard]] at::Tensor all_gather_rows(const at::Tensor& rows) const;
  /// Every rank's number, in rank order.
  [[nodiscard]] std::vector<int64_t> all_gather_numbers(int64_t number) const;
  /// Every rank's bytes, in rank order. For small messages such as names.
  [[nodiscard]] std::vector<std::string> all_gather_bytes(const std::string& bytes) const;
  /// The same on rank `root`; empty on the others.
  [[nodiscard]] std::vector<std::string> gather_bytes(const std::string& bytes, int root = 0) const;
  /// The bytes of rank `root`; those of the others are not read.
  [[nodiscard]] std::string broadcast_bytes(const std::string& bytes, int root = 0) const;

  /// The last collectives that this rank called here, one per line, with the state of each.
  std::string collective_log() const;

 private:
  friend std::optional<detail::ClosureCalls> detail::closure_calls(const Communicator&);
  friend Communicator detail::with_closure_calls(const Communicator& world);
  friend std::string detail::graph_capture_refusal(const Communicator& communicator);
  friend detail::GraphCapture& detail::graph_capture(const Communicator& communicator);
  friend bool detail::rounds_at_each_rank(const Communicator& communicator);

  Communicator() = default;
  detail::Transport& transport() const;

  std::shared_ptr<detail::Transport> transport_;
};

}  // namespace lockstep
