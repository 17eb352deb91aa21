#include <link.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/loaded_libraries.h>

namespace lockstep::detail {

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

std::string one_library(const std::vector<std::string>& libraries, const std::string& name) {
  std::string found;
  for (const std::string& path : libraries) {
    const std::string file = path.substr(path.rfind('/') + 1);
    if (file != name && file.compare(0, name.size() + 1, name + ".") != 0) {
      continue;
    }
    LOCKSTEP_CHECK_CODE(found.empty() || found == path, ExitCode::environment,
                        "two copies of NCCL are loaded, ", found, " and ", path,
                        ": each would know only its own communicators; remove one from "
                        "LD_LIBRARY_PATH or LD_PRELOAD, or let both be the same file");
    found = path;
  }
  return found;
}

}  // namespace lockstep::detail
