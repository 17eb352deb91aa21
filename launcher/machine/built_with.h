#pragma once

#include <string>

namespace lockstep::launcher {

/// What `lockstep --version` prints: lockstep and its commit, the LibTorch and NCCL that it was
/// built with, and the MPI library that a process without a launcher would load here, one a line.
std::string version_text();

/// The file of the MPI library that a process would load (mpi_files.h); empty: there is none.
std::string mpi_file();

}  // namespace lockstep::launcher
