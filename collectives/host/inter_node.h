#pragma once

#include <lockstep/collectives/host/collective_step.h>
#include <lockstep/collectives/host/slice.h>
#include <lockstep/collectives/impl/collective_call.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// One rank's interface to the ranks on other nodes: exchange of calls, of slices to reduce and of
/// pieces to gather, and whole collectives over the network. Does not exist on a single node.
/// Threads: as the communicator.
class InterNode {
 public:
  virtual ~InterNode() = default;

  /// Starts at the first call for a collective. True once `all` holds the call of every rank.
  virtual bool gather_calls(const CollectiveCall& own, std::vector<CollectiveCall>& all) = 0;
  /// Advances sends and receives without waiting.
  virtual void progress() = 0;

  /// Sends a short text to every rank of the other nodes, without waiting.
  virtual void tell(const std::string& text) = 0;
  /// As tell(), before this rank leaves: waits a moment so that the text can be sent.
  virtual void tell_at_last(const std::string& text) noexcept = 0;
  /// The texts that have arrived: (sender, text).
  virtual std::vector<std::pair<int, std::string>> heard() = 0;

  /// The ranks of the smallest node. Local ranks 0 to columns() - 1 of each node exchange data: a
  /// column is one rank of each node, with the same local rank.
  virtual int columns() const = 0;
  /// Reduces a slice over all ranks of all nodes, in rank order with one rounding, and writes it to
  /// `result`. `sources`: the slice of each rank of this node, of the result's dtype. One slice at
  /// a time. All memory must stay until slice_is_reduced() has returned true.
  virtual void reduce_slice(const kernels::Reduction& reduction,
                            const std::vector<const void*>& sources, Span result) = 0;
  virtual bool slice_is_reduced() = 0;

  /// The ranks of other nodes whose pieces arrive at each column of this node, in this order.
  virtual const std::vector<std::vector<int>>& arrivals() const = 0;
  /// The largest number of arrivals at any column of any node.
  virtual size_t most_arrivals() const = 0;
  /// Called by each rank that has a column. `pieces`: one of each rank of this node, `bytes` long.
  /// `arrived`: room for the pieces that arrive at its column. One exchange at a time. All memory
  /// must stay until pieces_have_arrived() has returned true.
  virtual void exchange_pieces(const std::vector<const void*>& pieces, int64_t bytes,
                               char* arrived) = 0;
  virtual bool pieces_have_arrived() = 0;

  /// Whether reduce_scatter() sends fewer bytes between nodes than an all-reduce of this dtype.
  virtual bool scatters_cheaply(at::ScalarType dtype) const = 0;
  virtual std::unique_ptr<CollectiveStep> reduce_scatter(Span output, Span input,
                                                         const kernels::Reduction& reduction) = 0;
  virtual std::unique_ptr<CollectiveStep> broadcast(Span tensor, int root) = 0;
  virtual std::unique_ptr<CollectiveStep> barrier() = 0;
};

}  // namespace lockstep::detail
