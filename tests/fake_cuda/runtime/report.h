#pragma once

#include <string>

/// What happened, as JSON at the end of the process (FAKE_CUDA_REPORT=FILE; %p in its name becomes
/// the process id). Processes that made no context write nothing.
namespace fake_cuda {

/// One more launch of the kernel. Threads: any.
void count_kernel(const std::string& kernel);
/// The report's text.
std::string report();

}  // namespace fake_cuda
