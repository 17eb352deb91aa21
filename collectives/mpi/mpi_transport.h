#pragma once

#include <lockstep/collectives/communicator_options.h>
#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/impl/transport.h>

#include <atomic>
#include <memory>

namespace lockstep::detail {

/// The ranks of an MPI communicator of any size; solo where it has one rank. Collective.
/// `failed` becomes true once this transport, or one split from it, has thrown.
std::shared_ptr<Transport> make_mpi_transport(MpiComm comm, CommunicatorOptions options,
                                              std::shared_ptr<std::atomic<bool>> failed);
/// The same for ranks of `comm` of which `node`, in the order of `comm`, share this rank's memory.
std::shared_ptr<Transport> make_mpi_transport(MpiComm comm, MpiComm node,
                                              CommunicatorOptions options,
                                              std::shared_ptr<std::atomic<bool>> failed);

}  // namespace lockstep::detail
