#include <dlfcn.h>
#include <link.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/loaded_libraries.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

/// Whether NCCL is a part of this loaded library, not one that it needs.
bool defines_nccl(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    return false;
  }
  void* function = dlsym(library, "ncclGetVersion");
  Dl_info info{};
  const bool defines =
      function != nullptr && dladdr(function, &info) != 0 && path == info.dli_fname;
  dlclose(library);
  return defines;
}

}  // namespace

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

std::vector<std::string> nccl_files(const std::vector<std::string>& libraries) {
  std::vector<std::string> found;
  for (const std::string& path : libraries) {
    const std::string file = path.substr(path.rfind('/') + 1);
    const bool holds_nccl = file == "libnccl.so" || file.rfind("libnccl.so.", 0) == 0 ||
                            (file == "libtorch_cuda.so" && defines_nccl(path));
    if (holds_nccl && std::find(found.begin(), found.end(), path) == found.end()) {
      found.push_back(path);
    }
  }
  return found;
}

std::string nccl_file(const std::vector<std::string>& libraries) {
  const std::vector<std::string> found = nccl_files(libraries);
  LOCKSTEP_CHECK_CODE(found.size() < 2, ExitCode::environment, "two copies of NCCL are loaded, ",
                      found[0], " and ", found[1],
                      ": each would know only its own communicators; remove one from "
                      "LD_LIBRARY_PATH or LD_PRELOAD, or let both be the same file");
  return found.empty() ? "" : found.front();
}

}  // namespace lockstep::detail
