#pragma once

#include <c10/core/ScalarType.h>
#include <lockstep/collectives/collective_step.h>
#include <lockstep/collectives/node_group.h>
#include <lockstep/collectives/reduce_kernels.h>
#include <lockstep/collectives/slice.h>

#include <memory>
#include <vector>

namespace lockstep {

/// Flat memory of one dtype.
struct Span {
  char* data = nullptr;
  int64_t numel = 0;
  c10::ScalarType dtype = c10::ScalarType::Byte;

  int64_t element_size() const { return static_cast<int64_t>(c10::elementSize(dtype)); }
  size_t bytes() const { return static_cast<size_t>(numel * element_size()); }
  char* at(int64_t element) const { return data + element * element_size(); }
};

/// Adds what the ranks of other nodes have for a slice. One slice at a time.
class SliceExchange {
 public:
  virtual ~SliceExchange() = default;
  /// This rank takes part in slices 0 ... lanes()-1, one for each rank of the smallest node.
  virtual int lanes() const = 0;
  /// Whether every node has one rank only, so that there is nothing to sum before.
  virtual bool nodes_are_ranks() const = 0;
  /// Reduces `n` elements of `partial_dtype` over the nodes and writes the result, of `dtype`, to
  /// `result`. All memory must stay until test() has said true.
  virtual void start(const kernels::Reduction& reduction, c10::ScalarType partial_dtype,
                     const char* partial, c10::ScalarType dtype, char* result, int64_t n) = 0;
  virtual bool test() = 0;
};

/// Each rank sums all of a small tensor for itself: one wait instead of two.
std::unique_ptr<CollectiveStep> make_small_all_reduce(NodeGroup& group, Span tensor,
                                                      const kernels::Reduction& reduction);
/// Each rank sums its slice of each chunk. `exchange` is null on a single node.
std::unique_ptr<CollectiveStep> make_staged_all_reduce(NodeGroup& group, Span tensor,
                                                       const kernels::Reduction& reduction,
                                                       SliceExchange* exchange);
/// The same on memory that all ranks of the node can reach, with nothing copied: `copies[k]` is
/// rank k's tensor.
std::unique_ptr<CollectiveStep> make_shared_buffer_all_reduce(NodeGroup& group, Span tensor,
                                                              std::vector<char*> copies,
                                                              const kernels::Reduction& reduction,
                                                              SliceExchange* exchange);
std::unique_ptr<CollectiveStep> make_reduce_scatter(NodeGroup& group, Span output, Span input,
                                                    const kernels::Reduction& reduction);
std::unique_ptr<CollectiveStep> make_all_gather(NodeGroup& group, Span output, Span input);
std::unique_ptr<CollectiveStep> make_broadcast(NodeGroup& group, Span tensor, int root);
std::unique_ptr<CollectiveStep> make_barrier();

}  // namespace lockstep
