// __cudaRegister...: the calls that nvcc puts into each object.
#include "symbols.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <mutex>
#include <unordered_map>

#include "../common/work.h"
#include "../machine/kernels.h"

namespace fake_cuda {

namespace {

struct Variable {
  std::string name;
  size_t bytes = 0;
};

struct Symbols {
  std::mutex mutex;
  std::unordered_map<const void*, std::string> kernels;
  std::unordered_map<const void*, Variable> variables;
};

Symbols& symbols() {
  static auto& made = *new Symbols;
  return made;
}

}  // namespace

std::string kernel_of(const void* function) {
  Symbols& all = symbols();
  std::lock_guard lock(all.mutex);
  const auto found = all.kernels.find(function);
  return found == all.kernels.end() ? "" : found->second;
}

bool find_variable(const void* symbol, char** memory, size_t* bytes) {
  Variable variable;
  {
    Symbols& all = symbols();
    std::lock_guard lock(all.mutex);
    const auto found = all.variables.find(symbol);
    if (found == all.variables.end()) {
      return false;
    }
    variable = found->second;
  }
  *bytes = variable.bytes;
  *memory = static_cast<char*>(variable_of(variable.name, variable.bytes));
  return true;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

FAKE_CUDA_EXPORT void** __cudaRegisterFatBinary(void*) {
  // Machine code is found by the kernels' names (FAKE_CUDA_CODE), not in the program's binary.
  static void* handle[1];
  return handle;
}

FAKE_CUDA_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
FAKE_CUDA_EXPORT void __cudaUnregisterFatBinary(void**) {}
FAKE_CUDA_EXPORT char __cudaInitModule(void**) {
  return 1;
}

FAKE_CUDA_EXPORT void __cudaRegisterFunction(void**, const char* function, char*, const char* name,
                                             int, uint3*, uint3*, dim3*, dim3*, int*) {
  Symbols& all = symbols();
  std::lock_guard lock(all.mutex);
  all.kernels[function] = name;
}

FAKE_CUDA_EXPORT void __cudaRegisterVar(void**, char* variable, char*, const char* name, int,
                                        size_t bytes, int, int) {
  Symbols& all = symbols();
  std::lock_guard lock(all.mutex);
  all.variables[variable] = {name, bytes};
}

}  // extern "C"
