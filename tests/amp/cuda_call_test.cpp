// What is made of CUDA's answer to a launch.
#include <gtest/gtest.h>
#include <lockstep/amp/cuda/cuda_call.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <string>

namespace lockstep {
namespace {

ExitCode code_of(const char* problem) {
  try {
    amp::check_call(problem, "the update kernel");
  } catch (const Error& error) {
    const std::string begin = std::string("the update kernel: CUDA says: ") + problem;
    EXPECT_EQ(std::string(error.what()).rfind(begin, 0), 0U) << error.what();
    return error.code();
  }
  return ExitCode::ok;
}

TEST(CudaCall, TellsADeviceThatIsBrokenFromOneWithoutTheKernel) {
  EXPECT_NO_THROW(amp::check_call(nullptr, "the update kernel"));
  EXPECT_EQ(code_of("cudaErrorNoKernelImageForDevice"), ExitCode::environment);
  EXPECT_EQ(code_of("cudaErrorUnsupportedPtxVersion"), ExitCode::environment);
  EXPECT_EQ(code_of("cudaErrorIllegalAddress"), ExitCode::peer_lost);
  EXPECT_EQ(code_of("cudaErrorMemoryAllocation"), ExitCode::out_of_memory);
  EXPECT_EQ(code_of("cudaErrorStreamCaptureUnsupported"), ExitCode::usage);
}

}  // namespace
}  // namespace lockstep
