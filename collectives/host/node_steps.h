#pragma once

#include <lockstep/collectives/host/collective_step.h>
#include <lockstep/collectives/host/inter_node.h>
#include <lockstep/collectives/host/node_group.h>
#include <lockstep/collectives/host/slice.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>

#include <memory>
#include <vector>

namespace lockstep::detail {

/// Each rank sums the whole of a small tensor: one wait instead of two.
/// `sequence` is the number of the call, the same on all ranks.
std::unique_ptr<CollectiveStep> make_small_all_reduce(NodeGroup& group, Span tensor,
                                                      const kernels::Reduction& reduction,
                                                      uint64_t sequence);
/// Each rank sums its slice of each chunk. `inter_node` is null on a single node.
std::unique_ptr<CollectiveStep> make_staged_all_reduce(NodeGroup& group, Span tensor,
                                                       const kernels::Reduction& reduction,
                                                       InterNode* inter_node);
/// The same in shared buffers, without copies. `copies[k]`: the tensor of rank k.
std::unique_ptr<CollectiveStep> make_shared_buffer_all_reduce(NodeGroup& group, Span tensor,
                                                              std::vector<char*> copies,
                                                              const kernels::Reduction& reduction,
                                                              InterNode* inter_node);
std::unique_ptr<CollectiveStep> make_reduce_scatter(NodeGroup& group, Span output, Span input,
                                                    const kernels::Reduction& reduction);
/// In place in shared buffers, without copies: each rank sums its share of all copies into its own.
/// For a single node.
std::unique_ptr<CollectiveStep> make_shared_buffer_reduce_scatter(
    NodeGroup& group, Span input, const std::vector<char*>& copies,
    const kernels::Reduction& reduction);
/// `ranks`: the communicator's ranks of the group.
std::unique_ptr<CollectiveStep> make_all_gather(NodeGroup& group, const std::vector<int>& ranks,
                                                Span output, Span input, InterNode* inter_node);
std::unique_ptr<CollectiveStep> make_broadcast(NodeGroup& group, Span tensor, int root);
std::unique_ptr<CollectiveStep> make_barrier();

}  // namespace lockstep::detail
