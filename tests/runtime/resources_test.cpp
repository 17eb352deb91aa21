// What is said of memory and devices that failed. Figures and exceptions are made up.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/as_error.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/runtime.h>

#include <new>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

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

TEST(AsError, IsUsageForTheRest) {
  EXPECT_EQ(as_error_of(std::runtime_error("sizes differ")).code(), ExitCode::usage);
  EXPECT_STREQ(as_error_of(std::runtime_error("sizes differ")).what(), "sizes differ");
  EXPECT_EQ(as_error_of(7).code(), ExitCode::usage);
}

TEST(Run, EndsWithTheCodeOfWhatFailed) {
  const auto code = [](auto exception) {
    return run(0, nullptr, [&](Runtime&) { throw exception; });
  };
  EXPECT_EQ(code(std::bad_alloc()), 23);
  EXPECT_EQ(code(device_error(719)), 20);
  EXPECT_EQ(code(std::runtime_error("sizes differ")), 1);
  EXPECT_EQ(code(Error("no driver", ExitCode::environment)), 3);
}

TEST(MemoryUse, ListsWhatThereIsAndWhatTheDeviceHas) {
  ArenaMemory arena;
  arena.weights = int64_t{250} << 20;
  arena.masters = int64_t{500} << 20;
  EXPECT_EQ(memory_line(arena), "weights 250 MiB, masters 500 MiB");
  EXPECT_FALSE(device_memory(c10::kCPU).has_value());
  DeviceMemory device;
  device.free = int64_t{1} << 29;
  device.total = int64_t{80} << 30;
  device.allocated = int64_t{70} << 30;
  device.most_allocated = int64_t{75} << 30;
  device.reserved = int64_t{78} << 30;
  const std::string text = out_of_memory_advice(arena, device, "activations  budget 8 GiB");
  EXPECT_THAT(text, HasSubstr("lockstep holds 750 MiB: weights 250 MiB, masters 500 MiB\n"));
  EXPECT_THAT(text, HasSubstr("the device has 512 MiB free of 80 GiB"));
  EXPECT_THAT(text, HasSubstr("have 70 GiB now, had 75 GiB at most, it holds 78 GiB"));
  EXPECT_THAT(text, HasSubstr("\n  activations  budget 8 GiB\n"));
  EXPECT_THAT(out_of_memory_advice({}, device, ""), HasSubstr("lockstep holds nothing yet\n"));
}

}  // namespace
}  // namespace lockstep
