#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launcher {

/// The place of a LibTorch: the `torch` folder of a wheel, or an unpacked libtorch.
struct LibTorchPlace {
  std::string root;
  /// The folders that LD_LIBRARY_PATH needs. Empty if a program finds this LibTorch by itself.
  std::vector<std::string> library_folders;
};

/// Finds LibTorch `version` for programs that were linked with the one in `linked_root`:
/// there if that folder exists, else in the environment variable LibTorch_ROOT, then in the active
/// Python environment (VIRTUAL_ENV, CONDA_PREFIX). Ignores other versions. `variable` gives the
/// value of an environment variable, or null.
std::optional<LibTorchPlace> find_libtorch(
    const std::string& linked_root, const std::string& version,
    const std::function<const char*(const char* name)>& variable);

}  // namespace lockstep::launcher
