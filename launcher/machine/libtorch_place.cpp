#include "machine/libtorch_place.h"

#include <cstdio>
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

/// The first line of the file; empty: there is none.
std::string recorded_root(const fs::path& prefix) {
  std::ifstream file(prefix / "share/lockstep/libtorch");
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::optional<LibTorchPlace> find_libtorch(const LibTorchSearch& search) {
  // The programs' own run-time paths name these two.
  for (const fs::path& root :
       {fs::path(recorded_root(search.prefix)), fs::path(search.prefix) / "../torch"}) {
    if (!root.empty() && version_in(root) == search.version) {
      return LibTorchPlace{root.string(), {}};
    }
  }
  std::vector<fs::path> candidates;
  if (const char* root = search.variable("LibTorch_ROOT")) {
    candidates.emplace_back(root);
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* environment = search.variable(name)) {
      for (fs::path& torch : torch_folders(environment)) {
        candidates.push_back(std::move(torch));
      }
    }
  }
  for (const fs::path& root : candidates) {
    if (version_in(root) == search.version) {
      return LibTorchPlace{root.string(), library_folders(root)};
    }
  }
  const fs::path root = search.ask_python();
  if (!root.empty() && version_in(root) == search.version) {
    return LibTorchPlace{root.string(), library_folders(root)};
  }
  return std::nullopt;
}

std::string torch_of_python() {
  FILE* output = popen(
      "python3 -c 'import importlib.util as u; "
      "print(u.find_spec(\"torch\").submodule_search_locations[0])' 2>/dev/null",
      "r");
  std::string line;
  for (int byte = 0; output != nullptr && (byte = fgetc(output)) != EOF && byte != '\n';) {
    line += static_cast<char>(byte);
  }
  if (output != nullptr) {
    pclose(output);
  }
  return line;
}

}  // namespace lockstep::launcher
