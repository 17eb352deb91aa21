// What is made of CUDA's answer to a launch, and of the same error from LibTorch.
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <lockstep/amp/cuda/cuda_call.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/cuda_errors.h>

#include <exception>
#include <map>
#include <set>
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

/// What a new process cannot have back, or have for the first time, by itself.
const std::map<ExitCode, std::set<int>>& expected() {
  static const std::map<ExitCode, std::set<int>> codes{
      {ExitCode::out_of_memory, {2}},
      {ExitCode::environment, {3,   34,  35,  36,  46,  49,  98,  100, 101, 102, 103, 127, 200,
                               209, 216, 217, 218, 221, 222, 223, 224, 225, 301, 302, 303, 304,
                               500, 800, 801, 802, 803, 804, 805, 808, 809, 811, 812}},
      {ExitCode::peer_lost,
       {214, 220, 226, 700, 702, 714, 715, 716, 717, 718, 719, 721, 806, 807, 810, 909, 911, 999}}};
  return codes;
}

TEST(CudaErrors, HaveOneCodeWhoeverReportsThem) {
  const auto name_of =
      reinterpret_cast<const char* (*)(int)>(dlsym(RTLD_DEFAULT, "cudaGetErrorName"));
  for (int number = 1; number < 1000; ++number) {
    ExitCode code = ExitCode::usage;
    for (const auto& [other, numbers] : expected()) {
      code = numbers.count(number) != 0 ? other : code;
    }
    const c10::AcceleratorError error({__func__, __FILE__, __LINE__}, number,
                                      "CUDA error: made up");
    EXPECT_EQ(detail::as_error(std::make_exception_ptr(error)).code(), code) << number;
    const std::string name = name_of == nullptr ? "" : name_of(number);
    if (!name.empty() && name != "unrecognized error code") {
      EXPECT_EQ(code_of(name.c_str()), code) << number << " " << name;
    }
  }
}

TEST(CudaErrors, HaveTheNamesOfTheRuntime) {
  const auto name_of =
      reinterpret_cast<const char* (*)(int)>(dlsym(RTLD_DEFAULT, "cudaGetErrorName"));
  if (name_of == nullptr) {
    GTEST_SKIP() << "this LibTorch is for CPUs";
  }
  for (const auto& [code, numbers] : expected()) {
    for (const int number : numbers) {
      const std::string name = name_of(number);
      EXPECT_TRUE(name == "unrecognized error code" || name == detail::cuda_error(number).name)
          << number << ": " << name;
      EXPECT_EQ(detail::cuda_error(detail::cuda_error(number).name).number, number);
    }
  }
}

}  // namespace
}  // namespace lockstep
