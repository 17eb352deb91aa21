#pragma once

#include <string>

namespace lockstep::launcher {

/// What `lockstep --version` prints: lockstep and its commit, and the LibTorch, MPI and NCCL that
/// it was built with, one a line.
std::string version_text();

/// "Open MPI 4.1.4": the MPI that this build's programs need.
std::string built_for_mpi();
bool is_built_for_open_mpi();
/// The file that they load: libmpi.so.40 of Open MPI 4 and 5, libmpi.so.12 of MPICH and its kin.
const char* mpi_library();

/// One sentence about `library` if the dynamic linker does not find it; empty: it does.
std::string why_no_mpi(const std::string& program, const char* library = mpi_library());

}  // namespace lockstep::launcher
