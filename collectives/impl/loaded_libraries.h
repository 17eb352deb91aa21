#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// The shared libraries of this process.
std::vector<std::string> loaded_libraries();

/// Those of `libraries` that hold an NCCL, each once: libnccl.so and libnccl.so.SUFFIX, and
/// LibTorch's libtorch_cuda.so where NCCL is a part of it.
std::vector<std::string> nccl_files(const std::vector<std::string>& libraries);

/// The one of nccl_files(libraries); empty: there is none. Throws Error (code environment) that
/// names them if there are two: each would have its own state.
std::string nccl_file(const std::vector<std::string>& libraries);

}  // namespace lockstep::detail
