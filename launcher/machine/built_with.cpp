#include "machine/built_with.h"

#include <dlfcn.h>
#include <mpi.h>

#include "commit.h"  // of the build tree: cmake/commit.cmake

namespace lockstep::launcher {
namespace {

std::string nccl_text() {
  const int number = LOCKSTEP_NCCL_BUILT;
  return number == 0 ? "none"
                     : std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) +
                           "." + std::to_string(number % 100);
}

}  // namespace

std::string version_text() {
  const std::string cuda = LOCKSTEP_LIBTORCH_CUDA;
  return "lockstep " LOCKSTEP_VERSION "\ncommit   " LOCKSTEP_COMMIT
         "\nLibTorch " LOCKSTEP_LIBTORCH_VERSION +
         (cuda.empty() ? " for CPUs" : " for CUDA " + cuda) + "\nMPI      " + built_for_mpi() +
         " (" + mpi_library() + ")\nNCCL     " + nccl_text();
}

std::string built_for_mpi() {
#if defined(OMPI_MAJOR_VERSION)
  return "Open MPI " + std::to_string(OMPI_MAJOR_VERSION) + "." +
         std::to_string(OMPI_MINOR_VERSION) + "." + std::to_string(OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  return "MPICH " MPICH_VERSION;
#else
  return "an MPI of standard " + std::to_string(MPI_VERSION);
#endif
}

bool is_built_for_open_mpi() {
  return built_for_mpi().rfind("Open MPI", 0) == 0;
}

const char* mpi_library() {
  return is_built_for_open_mpi() ? "libmpi.so.40" : "libmpi.so.12";
}

std::string why_no_mpi(const std::string& program, const char* library) {
  if (dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr) {
    return "";
  }
  return program + " needs " + library + " of " + built_for_mpi() +
         ", for which this lockstep was built, and the dynamic linker finds none: install or load "
         "that MPI, since the library of another kind of MPI does not take its place";
}

}  // namespace lockstep::launcher
