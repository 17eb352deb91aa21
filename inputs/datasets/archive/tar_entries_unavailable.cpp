#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/inputs/datasets/archive/tar_entries.h>

namespace lockstep::detail {

std::vector<TarEntry> tar_entries(const MappedData& file) {
  throw Error(c10::str(file.path(),
                       ": TarShards needs libarchive, and lockstep was built without; "
                       "install libarchive-dev and build lockstep again"),
              ExitCode::environment);
}

}  // namespace lockstep::detail
