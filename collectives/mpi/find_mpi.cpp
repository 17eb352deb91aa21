#include <dlfcn.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/loaded_libraries.h>
#include <lockstep/collectives/impl/mpi_files.h>
#include <lockstep/collectives/mpi/find_mpi.h>
#include <lockstep/collectives/mpi/mpi_functions.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::detail {
namespace {

std::atomic<const MpiLibrary*> the_library{nullptr};
bool is_found_here = false;  // by load_mpi()
std::string not_loaded;      // what the last load_mpi() tried before

/// The files of this process that have MPI's functions, each once. A profiler's functions have the
/// names MPI_…, those with PMPI_… are the library's own.
std::vector<std::string> libraries_of_process() {
  std::vector<std::string> found;
  for (const std::string& path : loaded_libraries()) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    void* function = library == nullptr ? nullptr : dlsym(library, "PMPI_Init_thread");
    Dl_info info{};
    if (function != nullptr && dladdr(function, &info) != 0 &&
        std::find(found.begin(), found.end(), info.dli_fname) == found.end()) {
      found.emplace_back(info.dli_fname);
    }
    if (library != nullptr) {
      dlclose(library);
    }
  }
  return found;
}

/// The functions of a file of this process, which Open MPI's plugins take from its global scope.
std::unique_ptr<MpiLibrary> functions_of(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
  LOCKSTEP_CHECK_CODE(library != nullptr, ExitCode::environment, "cannot use the MPI library ",
                      path, ": ", dlerror());
  if (dlsym(library, "ompi_mpi_comm_world") != nullptr) {
    return std::make_unique<MpiFunctions<OpenMpiAbi>>(library);
  }
  const std::string name = path.substr(path.rfind('/') + 1);
  LOCKSTEP_CHECK_CODE(
      name.find(".so.12") != std::string::npos, ExitCode::environment,
      "the MPI library of this process is ", path,
      ", which has neither the binary interface of Open MPI (libmpi.so.40) nor that of MPICH and "
      "its relatives (libmpi.so.12); use one of these");
  return std::make_unique<MpiFunctions<MpichAbi>>(library);
}

}  // namespace

const MpiLibrary* loaded_mpi() {
  if (const MpiLibrary* found = the_library.load(std::memory_order_acquire)) {
    return found;
  }
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (the_library.load() == nullptr) {
    const std::vector<std::string> paths = libraries_of_process();
    LOCKSTEP_CHECK_CODE(paths.size() < 2, ExitCode::environment, "two MPI libraries are loaded, ",
                        paths[0], " and ", paths[1],
                        ": ranks of one do not see those of the other; link the program, and the "
                        "libraries that it uses, to the same one");
    if (!paths.empty()) {
      the_library.store(functions_of(paths.front()).release(), std::memory_order_release);
    }
  }
  return the_library.load();
}

const MpiLibrary& load_mpi() {
  if (const MpiLibrary* found = loaded_mpi()) {
    return *found;
  }
  not_loaded.clear();
  for (const std::string& file : mpi_files()) {
    if (dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr) {
      LOCKSTEP_CHECK_CODE(loaded_mpi() != nullptr, ExitCode::environment, file,
                          " is no MPI library; name one in LOCKSTEP_MPI");
      is_found_here = true;
      return *loaded_mpi();
    }
    not_loaded += "\n  " + std::string(dlerror());
  }
  throw Error(
      "a launcher started this rank, but the dynamic linker finds no MPI library; install that of "
      "the launcher (Debian: libopenmpi3 or libmpich12; Cray: module load cray-mpich-abi), or name "
      "its file in LOCKSTEP_MPI. Tried:" +
          not_loaded,
      ExitCode::environment);
}

std::string advice_on_mpi() {
  if (!is_found_here) {
    return "the program, or a library of it, is linked to that one: use its mpirun, or link both "
           "to the launcher's";
  }
  return "lockstep found that one: use its mpirun (under srun --mpi=pmix for Open MPI, "
         "--mpi=pmi2 for MPICH), or name the launcher's library in LOCKSTEP_MPI" +
         (not_loaded.empty() ? "" : ". Not loaded:" + not_loaded);
}

}  // namespace lockstep::detail
