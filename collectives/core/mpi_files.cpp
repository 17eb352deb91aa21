#include <lockstep/collectives/impl/mpi_files.h>

#include <cstdlib>
#include <filesystem>

namespace lockstep::detail {
namespace {

// Both kinds keep their binary interface for as long as they keep this number.
const char* const open_mpi_name = "libmpi.so.40";
const char* const mpich_names[] = {"libmpi.so.12", "libmpich.so.12"};  // the second is Debian's

/// The folder of the first mpirun in PATH, links followed; empty: there is none.
std::filesystem::path folder_of_mpirun() {
  const char* variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "" : variable;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    std::error_code failure;
    const auto file =
        std::filesystem::canonical(path.substr(begin, end - begin) + "/mpirun", failure);
    if (!failure) {
      return file.parent_path();
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::vector<std::string> mpi_files() {
  if (const char* named = std::getenv("LOCKSTEP_MPI"); named != nullptr && *named != '\0') {
    return {named};
  }
  const auto is_set = [](const char* variable) { return std::getenv(variable) != nullptr; };
  std::vector<std::string> names;
  const auto add_mpich = [&] {
    names.insert(names.end(), std::begin(mpich_names), std::end(mpich_names));
  };
  if (is_set("OMPI_COMM_WORLD_SIZE")) {
    names = {open_mpi_name};
  } else if (is_set("PMI_SIZE") || is_set("PMI_RANK") || is_set("MV2_COMM_WORLD_SIZE")) {
    add_mpich();
    names.emplace_back(open_mpi_name);
  } else {
    names = {open_mpi_name};
    add_mpich();
  }
  std::vector<std::string> files;
  const std::filesystem::path programs = folder_of_mpirun();
  for (const std::string& name : names) {
    for (const char* folder : {"lib", "lib64"}) {
      const auto file = programs.parent_path() / folder / name;
      std::error_code failure;
      if (!programs.empty() && std::filesystem::exists(file, failure)) {
        files.push_back(file.string());
      }
    }
  }
  files.insert(files.end(), names.begin(), names.end());
  return files;
}

}  // namespace lockstep::detail
