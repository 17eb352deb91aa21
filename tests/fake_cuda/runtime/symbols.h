#pragma once

#include <cstddef>
#include <string>

/// What the program's objects register as they load: its kernels and `__device__` variables.
namespace fake_cuda {

/// The mangled name of the kernel behind a function of the host; empty if there is none.
std::string kernel_of(const void* function);
/// False if the symbol is no variable of a device.
bool find_variable(const void* symbol, char** memory, size_t* bytes);

}  // namespace fake_cuda
