#pragma once

#include <lockstep/collectives/mpi/mpi_library.h>

#include <string>

namespace lockstep::detail {

/// The library that the program is linked to or has loaded, or that load_mpi() has; null: none.
/// Throws Error (code environment) for two libraries, and for one that is neither Open MPI nor of
/// MPICH's binary interface. Threads: any.
const MpiLibrary* loaded_mpi();

/// loaded_mpi(), else the first of mpi_files() that the dynamic linker finds. Throws Error (code
/// environment) that says what was tried.
const MpiLibrary& load_mpi();

/// What to do where the library is not the launcher's: for messages.
std::string advice_on_mpi();

}  // namespace lockstep::detail
