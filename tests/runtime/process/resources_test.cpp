// What is said of memory and devices that failed. Figures and exceptions are made up.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/runtime.h>

#include <new>

#include "test_names.h"

namespace lockstep {
namespace {

c10::AcceleratorError device_error(int32_t code) {
  return {{__func__, __FILE__, __LINE__}, code, "CUDA error: made up"};
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
