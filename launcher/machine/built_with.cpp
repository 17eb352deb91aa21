#include "machine/built_with.h"

#include <dlfcn.h>
#include <link.h>
#include <lockstep/collectives/impl/mpi_files.h>

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
  const std::string mpi = mpi_file();
  return "lockstep " LOCKSTEP_VERSION "\ncommit   " LOCKSTEP_COMMIT
         "\nLibTorch " LOCKSTEP_LIBTORCH_VERSION +
         (cuda.empty() ? " for CPUs" : " for CUDA " + cuda) + "\nNCCL     " + nccl_text() +
         "\nMPI      " +
         (mpi.empty() ? "no library here; ranks need Open MPI, or MPICH or a relative" : mpi);
}

std::string mpi_file() {
  for (const std::string& file : detail::mpi_files()) {
    void* library = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    link_map* map = nullptr;
    if (library != nullptr && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) {
      return map->l_name;
    }
  }
  return "";
}

}  // namespace lockstep::launcher
