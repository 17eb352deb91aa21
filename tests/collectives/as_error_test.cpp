// What exceptions of any kind mean for a run. Those of devices are made up.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/as_error.h>

#include <new>
#include <system_error>

namespace lockstep {

using namespace detail;

namespace {

template <typename Exception>
Error as_error_of(const Exception& exception) {
  return as_error(std::make_exception_ptr(exception));
}

c10::AcceleratorError device_error(int32_t code) {
  return {{__func__, __FILE__, __LINE__}, code, "CUDA error: made up"};
}

TEST(AsError, KeepsTheCodeOfAnError) {
  EXPECT_EQ(as_error_of(Error("no disk", ExitCode::data)).code(), ExitCode::data);
  EXPECT_STREQ(as_error_of(Error("no disk", ExitCode::data)).what(), "no disk");
  EXPECT_EQ(as_error_of(CommunicationError("gone")).code(), ExitCode::peer_lost);
}

TEST(AsError, KnowsMemoryThatCouldNotBeHad) {
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  EXPECT_EQ(as_error_of(std::bad_alloc()).code(), ExitCode::out_of_memory);
  EXPECT_EQ(as_error_of(device_error(2)).code(), ExitCode::out_of_memory);
  EXPECT_EQ(as_error_of(c10::Error(here, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED")).code(),
            ExitCode::out_of_memory);
  EXPECT_EQ(as_error_of(c10::Error(here,
                                   "cuDNN error: "
                                   "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"))
                .code(),
            ExitCode::out_of_memory);
  // LibTorch's allocator on Arm, where it is mimalloc's.
  EXPECT_EQ(
      as_error_of(c10::Error(here, "DefaultCPUAllocator: not enough memory: you tried")).code(),
      ExitCode::out_of_memory);
  // A thread without memory for its stack.
  const auto no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  EXPECT_EQ(as_error_of(std::system_error(no_thread)).code(), ExitCode::out_of_memory);
  EXPECT_EQ(as_error_of(std::system_error(std::make_error_code(std::errc::no_such_device))).code(),
            ExitCode::usage);
  const Error error = as_error_of(c10::OutOfMemoryError(here, "tried to allocate 2.00 GiB"));
  EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  EXPECT_STREQ(error.what(), "tried to allocate 2.00 GiB") << "no backtrace";
}

TEST(AsError, TellsALostDeviceFromAWrongIndex) {
  EXPECT_EQ(as_error_of(device_error(719)).code(), ExitCode::peer_lost);
  EXPECT_EQ(as_error_of(c10::Error({__func__, __FILE__, __LINE__},
                                   "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling"))
                .code(),
            ExitCode::peer_lost);
  EXPECT_EQ(as_error_of(device_error(710)).code(), ExitCode::usage);
}

TEST(AsError, IsUsageForWorkThatCannotBeRecorded) {
  for (const int32_t code : {900, 901, 905, 906, 908}) {
    EXPECT_EQ(as_error_of(device_error(code)).code(), ExitCode::usage) << code;
  }
  EXPECT_EQ(as_error_of(device_error(909)).code(), ExitCode::peer_lost) << "a timeout";
}

TEST(AsError, IsTheEnvironmentWhereARestartCuresNothing) {
  for (const int32_t code : {35, 46, 100, 209, 218, 222, 802, 803}) {
    EXPECT_EQ(as_error_of(device_error(code)).code(), ExitCode::environment) << code;
  }
}

TEST(AsError, IsUsageForTheRest) {
  EXPECT_EQ(as_error_of(std::runtime_error("sizes differ")).code(), ExitCode::usage);
  EXPECT_STREQ(as_error_of(std::runtime_error("sizes differ")).what(), "sizes differ");
  EXPECT_EQ(as_error_of(7).code(), ExitCode::usage);
}

}  // namespace
}  // namespace lockstep
