#include "machine/visible_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/cuda_driver.h>

#include <cstdlib>
#include <utility>

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr auto kLong = std::chrono::minutes(1);

VisibleGpus with_driver(const char* made, milliseconds deadline = kLong) {
  setenv("MADE_DRIVER", made, 1);
  const VisibleGpus gpus = ask_driver(LOCKSTEP_MADE_DRIVER, deadline);
  unsetenv("MADE_DRIVER");
  return gpus;
}

TEST(VisibleGpus, AreCountedByTheDriver) {
  for (const int count : {0, 1, 3, 16}) {
    const VisibleGpus gpus = with_driver(std::to_string(count).c_str());
    EXPECT_EQ(gpus.count, count);
    EXPECT_EQ(gpus.problem, "");
  }
}

TEST(VisibleGpus, AreThoseThatTheEnvironmentLeaves) {
  const std::pair<const char*, int> lists[] = {
      {"", 0}, {"3", 1}, {"0,1,-1,3", 2}, {"GPU-8932f937-d72c,MIG-4f7d", 2}, {"NoDevFiles", 1}};
  for (const auto& [list, count] : lists) {
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    EXPECT_EQ(with_driver("8").count, count) << list;
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
}

TEST(VisibleGpus, AreNoneWithoutADriverAndThatIsNoProblem) {
  const VisibleGpus gpus = ask_driver("lib_of_no_driver.so.1", kLong);
  EXPECT_EQ(gpus.count, 0);
  EXPECT_EQ(gpus.problem, "");
}

TEST(VisibleGpus, AreNoneAndThatIsNoProblemWhereTheDriverSaysSo) {
  for (const char* none : {"error 100", "count error 100"}) {
    EXPECT_EQ(with_driver(none).count, 0);
    EXPECT_EQ(with_driver(none).problem, "");
  }
}

TEST(VisibleGpus, AreNoneWithTheReasonWhereTheDriverFails) {
  const std::pair<const char*, const char*> failures[] = {
      {"error 802", "NVIDIA's driver reports error 802: system not yet initialized"},
      {"error 999", "NVIDIA's driver reports error 999"},
      {"count error 3", "NVIDIA's driver reports error 3"},
      {"crash", "was ended by signal 11"},
      {"exit", "ended the process that asked it"}};
  for (const auto& [made, reason] : failures) {
    const VisibleGpus gpus = with_driver(made);
    EXPECT_EQ(gpus.count, 0) << made;
    EXPECT_THAT(gpus.problem, EndsWith(reason)) << made;
  }
}

TEST(VisibleGpus, ThatADriverCannotGiveComeWithWhatToDo) {
  const std::pair<const char*, const char*> failures[] = {{"error 802", "nvidia-fabricmanager"},
                                                          {"error 803", "reboot"},
                                                          {"error 999", "nvidia_uvm"},
                                                          {"error 34", "LD_LIBRARY_PATH"},
                                                          {"error 46", "exclusive"},
                                                          {"error 804", "cuda-compat"},
                                                          {"error 217", "nvidia-smi and dmesg"},
                                                          {"error 12345", "nvidia-smi and dmesg"}};
  for (const auto& [made, advice] : failures) {
    const VisibleGpus gpus = with_driver(made);
    EXPECT_EQ(gpus.error, std::atoi(made + 6));
    EXPECT_THAT(detail::advice_for_driver(gpus.error), HasSubstr(advice)) << made;
  }
  EXPECT_THAT(detail::advice_for_driver(0), HasSubstr("nvidia-smi and dmesg")) << "it crashed";
}

TEST(CudaDevice, HasTheIdentityAndTheCapabilityThatTheDriverGives) {
  setenv("MADE_DRIVER", "3", 1);
  const auto first = detail::cuda_device(0, LOCKSTEP_MADE_DRIVER);
  const auto slice = detail::cuda_device(1, LOCKSTEP_MADE_DRIVER);
  ASSERT_TRUE(first && slice);
  EXPECT_EQ(first->uuid, "GPU-a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0");
  EXPECT_NE(first->uuid, slice->uuid);
  EXPECT_EQ(first->bus, "0000:c0:00.0");
  EXPECT_EQ(first->bus, slice->bus);
  EXPECT_EQ(std::pair(slice->major, slice->minor), std::pair(9, 1));
  EXPECT_FALSE(detail::cuda_device(3, LOCKSTEP_MADE_DRIVER)) << "not visible";
  setenv("MADE_DRIVER", "error 999", 1);
  EXPECT_FALSE(detail::cuda_device(0, LOCKSTEP_MADE_DRIVER));
  EXPECT_FALSE(detail::cuda_device(0, "lib_of_no_driver.so.1"));
  EXPECT_FALSE(detail::cuda_device(0, "libutil.so.1"));
  unsetenv("MADE_DRIVER");
}

TEST(VisibleGpus, AreNoneWithTheReasonWhereTheDriverHangs) {
  const VisibleGpus gpus = with_driver("hang", milliseconds(50));
  EXPECT_EQ(gpus.count, 0);
  EXPECT_THAT(gpus.problem, HasSubstr("hangs: no answer for 50 ms"));
}

TEST(VisibleGpus, AreNoneWithTheReasonWhereTheFileIsNoDriver) {
  EXPECT_THAT(ask_driver("libutil.so.1", kLong).problem, HasSubstr("is not NVIDIA's driver"));
}

}  // namespace
}  // namespace lockstep::launcher
