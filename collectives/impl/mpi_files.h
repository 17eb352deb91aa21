#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// The MPI libraries to try, in this order, for a process that has none yet. A name without a
/// folder is one for the dynamic linker.
///   LOCKSTEP_MPI         a file or a name: this one alone
///   else, by launcher    Open MPI's mpirun: Open MPI alone; a launcher of PMI (hydra, srun
///                        --mpi=pmi2, PALS): MPICH and its relatives, then Open MPI; others: Open
///                        MPI, then MPICH
/// Of a kind, the library that lies beside the mpirun of `lockstep run --mpirun` (which tells it in
/// LOCKSTEP_MPIRUN), or of PATH, comes before those that the dynamic linker finds. Spectrum MPI is
/// of Open MPI's kind.
std::vector<std::string> mpi_files();

}  // namespace lockstep::detail
