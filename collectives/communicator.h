#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/error.h>
#include <lockstep/collectives/reduce_op.h>
#include <lockstep/collectives/work.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class GraphCapture;
class Transport;

/// Whether ranks compare what they call (verb, dtype, size, operation, order) before data moves.
enum class CollectiveCheck { off, on };

struct CommunicatorOptions {
  /// How long a collective may wait for its peers before it throws CommunicationError.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// On: a mismatch throws Error on every rank and shows what each rank called. Costs one cache
  /// line a rank and collective.
  CollectiveCheck check = CollectiveCheck::on;
};

/// A group of ranks and the collectives among them.
///
/// Ranks: each collective (and split, allocate) must be called by every rank of the group, in the
/// same order. Threads: one thread at a time. Cheap to copy; copies are the same communicator.
/// Tensors: dense, contiguous, on the communicator's device; fp16 and bf16 are summed in fp32 and
/// rounded once; results have the same bits on every rank and do not depend on timing.
/// A tensor from allocate() is reduced in place where the ranks' memory is shared; any other one
/// is copied in and out. World size 1 returns at once and changes nothing.
/// Errors: Error for misuse, CommunicationError for a lost or late peer; each names the rank, the
/// collective and its sequence number.
class Communicator {
 public:
  /// A world of one rank.
  static Communicator solo();
  /// `size` ranks that are threads of this process: element i is for thread i. For tests and
  /// simulation. No MPI involved.
  static std::vector<Communicator> threads(int size, CommunicatorOptions options = {});

  explicit Communicator(std::shared_ptr<Transport> transport);

  int rank() const;
  int size() const;
  /// This rank's place among the ranks that share its memory (its node), and their number.
  int local_rank() const;
  int local_size() const;
  /// "solo", "thread", "mpi", ...
  std::string transport_name() const;

  /// tensor = reduction of all ranks' tensors. Float, integer types; avg for float types only.
  Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum()) const;
  /// output (n elements) = this rank's n-element share of the reduction of all ranks' inputs
  /// (size * n elements).
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                      ReduceOp op = ReduceOp::sum()) const;
  /// output (size * n elements) = all ranks' inputs (n elements each), in rank order.
  Work all_gather(const at::Tensor& output, const at::Tensor& input) const;
  /// tensor = rank root's tensor. Any dtype.
  Work broadcast(const at::Tensor& tensor, int root = 0) const;
  /// Complete once every rank has called it.
  Work barrier() const;

  /// One communicator for each color, ranks ordered by (key, rank). A negative color takes part
  /// but gets no communicator: the result then is not valid().
  Communicator split(int color, int key = 0) const;
  bool valid() const { return transport_ != nullptr; }

  /// Zeroed one-dimensional tensor in the memory this transport reduces fastest (a shared-memory
  /// buffer on the host). Every rank must ask for the same numel and dtype. The memory lives
  /// until the last tensor on it is gone.
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) const;

  /// Moves pending collectives on without blocking.
  void progress() const;

  /// Every rank's bytes, in rank order. Blocking; for small control messages such as names.
  std::vector<std::string> all_gather_bytes(const std::string& bytes) const;

  /// The last collectives this rank called here and the state of each, one a line.
  std::string collective_log() const;

 private:
  friend std::string graph_capture_refusal(const Communicator& communicator);
  friend GraphCapture& graph_capture(const Communicator& communicator);

  Communicator() = default;
  Transport& transport() const;

  std::shared_ptr<Transport> transport_;
};

}  // namespace lockstep
