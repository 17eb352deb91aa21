#pragma once

#include <memory>
#include <string>

#include "cubin.h"

/// The files in FAKE_CUDA_CODE, and what the disassembler says of them.
namespace fake_cuda {

/// The file that has a kernel, as an index names it. Throws DeviceFault
/// (cudaErrorNoKernelImageForDevice) if none has.
std::string file_of_kernel(const std::string& kernel);

/// All files of machine code.
const std::vector<std::string>& files_of_code();

/// The cubin in a file, read once. A file x.fatbin holds one cubin, which is taken out into the
/// cache. Not for several threads at once.
const Cubin& cubin_in(const std::string& file);

/// The text of a kernel's instructions, with their encoding. It is made by cuobjdump (CUOBJDUMP)
/// on the first use of this code and kept in the cache.
std::string disassembly_of(const std::string& kernel, const std::string& file,
                           std::string_view code);

}  // namespace fake_cuda
