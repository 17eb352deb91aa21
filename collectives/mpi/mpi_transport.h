#pragma once

#include <lockstep/collectives/communicator_options.h>
#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/impl/transport.h>

#include <atomic>
#include <memory>

namespace lockstep::detail {

/// A transport for the ranks of `comm`; solo if there is one rank. Collective.
/// `failed` is set when this transport, or one split from it, fails.
std::shared_ptr<Transport> make_mpi_transport(MpiComm comm, CommunicatorOptions options,
                                              std::shared_ptr<std::atomic<bool>> failed);
/// The same with known nodes: `node` has the ranks of this rank's node, in the order of `comm`.
std::shared_ptr<Transport> make_mpi_transport(MpiComm comm, MpiComm node,
                                              CommunicatorOptions options,
                                              std::shared_ptr<std::atomic<bool>> failed);

}  // namespace lockstep::detail
