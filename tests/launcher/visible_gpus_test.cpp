#include "machine/visible_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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
