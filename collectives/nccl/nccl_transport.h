#pragma once

#include <lockstep/collectives/impl/transport.h>
#include <lockstep/collectives/nccl/nccl_parts.h>

#include <memory>

namespace lockstep::detail {

/// Makes the NCCL transport: device tensors over NCCL, host tensors over `parts.host`.
///
/// Order: a collective runs on the lane, after the work that was on the caller's current stream at
/// its issue. Work::wait() makes the caller's current stream wait, not the host; with
/// CollectiveCheck::on the host waits until every rank has made the same call. Tensors in flight
/// are kept alive.
/// Averages: elements are multiplied by a power of two before the sum (PreMulSum) and the sum by
/// the rest of the factor, so an fp16 sum overflows only if the average does. NCCL's own average is
/// not used. Graph capture (graph_capture.h): during capture the ranks exchange their states over
/// the host (CaptureAgreement), so neither a rank nor its NCCL waits for a rank that failed. The
/// first collective forks the lane from the captured stream; at the end the lane joins the stream.
/// During capture no event is queried and no deadline runs. A launch is ordered with other
/// collectives by a mark after the graph. Failure: an error of NCCL, a late peer or differing calls
/// abort the communicator, on a thread of its own with a deadline of its own, and every later call
/// throws the same error. Since NCCL 2.26 ncclCommAbort returns only after every graph that
/// captured its collectives is destroyed. So after a capture the error is thrown once the abort has
/// started, the owner destroys the graphs, and the destructor waits for the abort.
/// Ranks: collective. One rank also makes a real communicator; a part of one rank is solo.
/// Errors: Error (environment) on every rank when versions differ, or when two ranks share a GPU
/// and NCCL cannot (before 2.30.3, or without NCCL_MULTI_RANK_GPU_ENABLE=1).
std::shared_ptr<Transport> make_nccl_transport(NcclParts parts);

}  // namespace lockstep::detail
