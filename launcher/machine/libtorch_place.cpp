#include "machine/libtorch_place.h"

#include <filesystem>
#include <fstream>

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

/// "2.11.0" of "2.11.0+cu130", from the version file of a wheel or a zip; empty: there is none.
std::string version_in(const fs::path& root) {
  std::ifstream wheel(root / "version.py");
  for (std::string line; std::getline(wheel, line);) {
    if (line.rfind("__version__ = '", 0) == 0) {
      const std::string rest = line.substr(15);
      return rest.substr(0, rest.find_first_of("+'"));
    }
  }
  std::ifstream zip(root / "build-version");
  std::string line;
  std::getline(zip, line);
  return line.substr(0, line.find('+'));
}

/// The torch folders of a Python environment, one for each Python version.
std::vector<fs::path> torch_folders(const fs::path& environment) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(environment / "lib", none)) {
    const fs::path torch = entry.path() / "site-packages" / "torch";
    if (entry.path().filename().string().rfind("python", 0) == 0 && fs::exists(torch, none)) {
      found.push_back(torch);
    }
  }
  return found;
}

/// LibTorch's own libraries, and those of the CUDA wheels beside the torch folder.
std::vector<std::string> library_folders(const fs::path& root) {
  std::vector<std::string> folders = {(root / "lib").string()};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root.parent_path() / "nvidia", none)) {
    if (fs::exists(entry.path() / "lib", none)) {
      folders.push_back((entry.path() / "lib").string());
    }
  }
  return folders;
}

}  // namespace

std::optional<LibTorchPlace> find_libtorch(
    const std::string& linked_root, const std::string& version,
    const std::function<const char*(const char* name)>& variable) {
  std::error_code none;
  if (fs::exists(fs::path(linked_root) / "lib", none)) {
    return LibTorchPlace{linked_root, {}};
  }
  std::vector<fs::path> candidates;
  if (const char* root = variable("LibTorch_ROOT")) {
    candidates.emplace_back(root);
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* environment = variable(name)) {
      for (fs::path& torch : torch_folders(environment)) {
        candidates.push_back(std::move(torch));
      }
    }
  }
  for (const fs::path& root : candidates) {
    if (version_in(root) == version) {
      return LibTorchPlace{root.string(), library_folders(root)};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::launcher
