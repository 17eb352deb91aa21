#pragma once

#include <lockstep/collectives/core/collective_call.h>
#include <lockstep/collectives/host/collective_step.h>
#include <lockstep/collectives/host/span.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// What the collectives of one rank need of the ranks on other nodes: their calls, their part of a
/// slice, and whole collectives that the network carries. Ranks on one node have no InterNode.
/// Threads: as the communicator.
class InterNode {
 public:
  virtual ~InterNode() = default;

  /// Starts with the first call for a collective; true once `all` holds every rank's call.
  virtual bool gather_calls(const CollectiveCall& own, std::vector<CollectiveCall>& all) = 0;
  /// Moves data on that this rank has sent or is to receive.
  virtual void progress() = 0;

  /// Sends a short text to every rank of the other nodes, without waiting.
  virtual void tell(const std::string& text) = 0;
  /// The same as the last words of this rank: gives the text some time to leave.
  virtual void tell_at_last(const std::string& text) noexcept = 0;
  /// The texts that have arrived, with their senders.
  virtual std::vector<std::pair<int, std::string>> heard() = 0;

  /// This rank takes part in slices 0 ... lanes()-1, one for each rank of the smallest node.
  virtual int lanes() const = 0;
  /// Reduces a slice over all ranks of all nodes, in rank order with one rounding, and writes it to
  /// `result`. `sources`: the slice of each rank of this node, of the result's dtype. One slice at
  /// a time. All memory must stay until slice_is_reduced() has returned true.
  virtual void reduce_slice(const kernels::Reduction& reduction,
                            const std::vector<const void*>& sources, Span result) = 0;
  virtual bool slice_is_reduced() = 0;

  virtual std::unique_ptr<CollectiveStep> reduce_scatter(Span output, Span input,
                                                         const kernels::Reduction& reduction) = 0;
  virtual std::unique_ptr<CollectiveStep> all_gather(Span output, Span input) = 0;
  virtual std::unique_ptr<CollectiveStep> broadcast(Span tensor, int root) = 0;
  virtual std::unique_ptr<CollectiveStep> barrier() = 0;
};

}  // namespace lockstep::detail
