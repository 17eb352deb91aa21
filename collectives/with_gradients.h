#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/reduce_op.h>

namespace lockstep {

/// Collectives that autograd goes through, for losses over the samples of all ranks.
///
/// Each rank computes a loss of its own. The gradient of these functions is that of the sum of all
/// ranks' losses, any number of times differentiable. A Trainer or DataParallel then averages the
/// gradients of the ranks, which gives the gradient of the mean of the losses: that of one rank
/// with the joined batch.
///
/// Tensors: of any floating dtype and strides, on the communicator's device. Results are new
/// tensors. While grad mode is on, a result has a graph on every rank, also where that rank's input
/// needs no gradient: backward is collective as well, and the loss of every rank must depend on the
/// result. Ranks: every rank calls them, in the same order; with one rank they copy. Threads: as
/// the communicator, whose memory each graph keeps alive.
/// Errors: as those of Communicator; Error if shapes do not fit.

/// The rows (dimension 0) of all ranks, in rank order. Ranks may have different numbers of rows,
/// also none; the other dimensions are equal. The host waits for the numbers of rows.
at::Tensor all_gather_with_gradients(const Communicator& communicator, const at::Tensor& rows);

/// This rank's share of the rows of the reduction of all ranks' tensors: rows [rank * n,
/// (rank + 1) * n) of size() * n rows. `op`: sum or avg.
at::Tensor reduce_scatter_with_gradients(const Communicator& communicator, const at::Tensor& rows,
                                         ReduceOp op = ReduceOp::sum());

/// The reduction of all ranks' tensors, which have the same shape. `op`: sum or avg.
at::Tensor all_reduce_with_gradients(const Communicator& communicator, const at::Tensor& tensor,
                                     ReduceOp op = ReduceOp::sum());

/// The tensor of rank `root`; those of the other ranks have its shape and dtype, and get zeros as
/// their gradient.
at::Tensor broadcast_with_gradients(const Communicator& communicator, const at::Tensor& tensor,
                                    int root = 0);

}  // namespace lockstep
