#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

/// A library of its own, preloaded before the others: it stands in front of cudaGetDeviceCount,
/// with which LibTorch begins, and switches off in LibTorch what the fake CUDA does not have. It
/// knows no header of LibTorch or CUDA, so that it fits programs of both languages and any build of
/// the rest.
namespace {

/// The full name of a library that the process has loaded, or "".
std::string loaded_library(const char* name) {
  struct Search {
    const char* name;
    std::string found;
  } search = {name, ""};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        const char* file = std::strrchr(info->dlpi_name, '/');
        if (file != nullptr && std::strcmp(file + 1, wanted->name) == 0) {
          wanted->found = info->dlpi_name;
          return 1;
        }
        return 0;
      },
      &search);
  return search.found;
}

template <typename Function>
Function* function_of(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "fake cuda: LibTorch has no %s: tests/fake_cuda/switches must follow it\n",
                 name);
    std::abort();
  }
  return reinterpret_cast<Function*>(symbol);
}

/// at::globalContext().setUserEnabledCuDNN(false) and its like. There is no cuDNN, and the kernels
/// of flash attention need tensor cores of compute capability 8.0 and asynchronous copies.
void switch_off() {
  // Python loads LibTorch privately: its symbols are not among the global ones.
  const std::string path = loaded_library("libtorch_cpu.so");
  if (path.empty()) {
    return;
  }
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  void* context = &function_of<char&()>(library, "_ZN2at13globalContextEv")();
  for (const char* setter :
       {"_ZN2at7Context19setUserEnabledCuDNNEb", "_ZN2at7Context14setSDPUseFlashEb",
        "_ZN2at7Context14setSDPUseCuDNNEb"}) {
    function_of<void(void*, bool)>(library, setter)(context, false);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int cudaGetDeviceCount(int* count) {
  static std::once_flag once;
  std::call_once(once, switch_off);
  using Function = int(int*);
  static Function* const next = [] {
    void* cudart = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
    return cudart == nullptr ? nullptr : function_of<Function>(cudart, "cudaGetDeviceCount");
  }();
  constexpr int kNoDevice = 100;  // cudaErrorNoDevice
  return next == nullptr ? kNoDevice : next(count);
}
