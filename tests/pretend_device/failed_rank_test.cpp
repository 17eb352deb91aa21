// One of two ranks cannot run a kernel in the middle of an update, where ranks agree on nothing:
// each rank says which one, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>

#include <exception>
#include <string>

#include "fault.h"
#include "ranks.h"
#include "runtime/cuda_runs.h"
#include "test_device.h"
#include "test_names.h"

namespace lockstep::pretend {
namespace {

Runtime* ranks = nullptr;

TEST(ADeviceWithoutTheKernel, IsNamedWithCudasWordsOnEveryRank) {
  constexpr int32_t no_kernel_image = 209;
  testing::DeviceRun run(*ranks, TrainerOptions());
  const auto step = [&](int64_t number) {
    run.step(testing::rows_of(number, 16 * ranks->rank(), 16));
  };
  step(0);
  plant({1'000'000});
  step(1);
  const int64_t operations = mend();
  if (ranks->rank() == 1) {
    plant({operations - 3, no_kernel_image});
  }
  std::string said;
  try {
    for (int64_t number = 2; number < 6; ++number) {
      step(number);
    }
  } catch (const std::exception&) {
    said = detail::as_error(std::current_exception()).what();
  }
  mend();
  EXPECT_THAT(said, HasSubstr("no kernel image is available"));
  if (ranks->rank() == 0) {
    EXPECT_THAT(said, HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace lockstep::pretend

c10::Device lockstep::testing::device() {
  return pretend::ranks->device();
}

int main(int argc, char** argv) {
  lockstep::testing::init_tests(&argc, argv);
  lockstep::Runtime runtime(argc, argv,
                            lockstep::RuntimeOptions()
                                .device(lockstep::DeviceKind::cuda)
                                .share_device(true)
                                .transport(lockstep::DeviceTransport::staged));
  lockstep::pretend::ranks = &runtime;
  return lockstep::testing::run_tests(runtime.rank(), runtime.size());
}
