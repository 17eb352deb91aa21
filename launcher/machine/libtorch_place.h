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

/// Where to look for LibTorch, in this order. Other versions than `version` are passed over.
struct LibTorchSearch {
  std::string version;
  /// Lockstep's own folder, which has bin/. Its file share/lockstep/libtorch names the LibTorch
  /// that the programs were linked with on this machine: packages for other machines have none. A
  /// package in site-packages has LibTorch beside it: ../torch.
  std::string prefix;
  /// Gives the value of an environment variable, or null. Asked for LibTorch_ROOT, then for the
  /// active Python environment (VIRTUAL_ENV, CONDA_PREFIX).
  std::function<const char*(const char* name)> variable;
  /// Asked last: torch_of_python().
  std::function<std::string()> ask_python;
};

std::optional<LibTorchPlace> find_libtorch(const LibTorchSearch& search);

/// The torch folder of the python3 in PATH; empty: there is none.
std::string torch_of_python();

}  // namespace lockstep::launcher
