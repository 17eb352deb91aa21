#include <lockstep/collectives/impl/mpi_files.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace lockstep::detail {
namespace {

// Both kinds keep their binary interface for as long as they keep this number.
using Names = std::vector<std::string>;
const Names open_mpi_names = {"libmpi.so.40", "libmpi_ibm.so.3"};  // the second is Spectrum MPI's
const Names mpich_names = {"libmpi.so.12", "libmpich.so.12"};      // the second is Debian's

/// The folder of this program, links followed; empty: there is no such program.
std::filesystem::path folder_of(const std::string& program) {
  std::error_code failure;
  const auto file = std::filesystem::canonical(program, failure);
  return failure ? std::filesystem::path() : file.parent_path();
}

/// The folders of the mpirun that `lockstep run` was told to use, and of the first one in PATH.
std::vector<std::filesystem::path> folders_of_mpirun() {
  std::vector<std::filesystem::path> folders;
  if (const char* told = std::getenv("LOCKSTEP_MPIRUN")) {
    folders.push_back(folder_of(told));
  }
  const char* variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "" : variable;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    folders.push_back(folder_of(path.substr(begin, end - begin) + "/mpirun"));
    if (!folders.back().empty()) {
      break;
    }
    begin = end + 1;
  }
  folders.erase(std::remove(folders.begin(), folders.end(), std::filesystem::path()),
                folders.end());
  return folders;
}

/// Which of these libraries are beside the programs of a folder.
Names beside(const std::filesystem::path& programs, const Names& names) {
  Names files;
  for (const std::string& name : names) {
    for (const char* libraries : {"lib", "lib64"}) {
      const auto file = programs.parent_path() / libraries / name;
      std::error_code failure;
      if (std::filesystem::exists(file, failure)) {
        files.push_back(file.string());
      }
    }
  }
  return files;
}

}  // namespace

std::vector<std::string> mpi_files() {
  if (const char* named = std::getenv("LOCKSTEP_MPI"); named != nullptr && *named != '\0') {
    return {named};
  }
  const auto is_set = [](const char* variable) { return std::getenv(variable) != nullptr; };
  std::vector<Names> kinds = {open_mpi_names, mpich_names};
  if (is_set("OMPI_COMM_WORLD_SIZE")) {
    kinds = {open_mpi_names};
  } else if (is_set("PMI_SIZE") || is_set("PMI_RANK") || is_set("MV2_COMM_WORLD_SIZE") ||
             is_set("PALS_RANKID")) {
    kinds = {mpich_names, open_mpi_names};
  }
  const std::vector<std::filesystem::path> programs = folders_of_mpirun();
  Names files;
  for (const Names& names : kinds) {
    for (const std::filesystem::path& folder : programs) {
      const Names found = beside(folder, names);
      files.insert(files.end(), found.begin(), found.end());
    }
    files.insert(files.end(), names.begin(), names.end());
  }
  return files;
}

}  // namespace lockstep::detail
