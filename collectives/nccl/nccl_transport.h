#pragma once

#include <lockstep/collectives/impl/transport.h>
#include <lockstep/collectives/nccl/nccl_parts.h>

#include <memory>

namespace lockstep::detail {

/// Device tensors over NCCL, host tensors over `parts.host`.
///
/// Order: NCCL runs on the lane, behind what the caller's stream held when the collective was
/// issued. Work::wait() makes the caller's current stream wait, not the host; with
/// CollectiveCheck::on the host waits until every rank has made the same call. Memory of a tensor
/// in flight is kept.
/// Averages: each element times a power of two before the sum (PreMulSum), the rest of the factor
/// after it, so no fp16 sum overflows that the average would not; NCCL's own average is not used.
/// Graph capture (graph_capture.h): during capture the ranks exchange their states over the host
/// (CaptureAgreement), so neither a rank nor its NCCL waits for a rank that failed. The first
/// collective forks the lane off the captured stream, and the lane joins the stream at the end.
/// During capture no event is queried and nothing is timed. launch() puts a mark behind the graph,
/// as behind a collective, which orders the graph with the collectives before and after. Failure:
/// an error of NCCL, a late peer or differing calls abort the communicator, on a thread of its own
/// with a deadline of its own, and every later call throws the same error. Since NCCL 2.26
/// ncclCommAbort returns only after every graph that captured its collectives is destroyed. So
/// after a capture the error is thrown as soon as the abort has started, the owner can destroy the
/// graphs, and the destructor waits for the abort to return.
/// Ranks: collective; with one rank all is done at once and NCCL is not asked.
/// Errors: Error (environment) on every rank when versions differ, or when two ranks share a GPU
/// and NCCL cannot (before 2.30.3, or without NCCL_MULTI_RANK_GPU_ENABLE=1).
std::shared_ptr<Transport> make_nccl_transport(NcclParts parts);

}  // namespace lockstep::detail
