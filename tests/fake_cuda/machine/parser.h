#pragma once

#include <string>

#include "instruction.h"

namespace fake_cuda {

/// Reads what the disassembler wrote of a kernel. Throws DeviceFault (cudaErrorNotSupported), which
/// names the kernel, the place and the text, for what the machine does not know.
Program parse_program(const std::string& kernel, const std::string& disassembly, int registers);

}  // namespace fake_cuda
