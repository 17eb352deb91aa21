// lockstep doctor on a pretend device whose kernels do something wrong.
#include "pretend_device/faults.h"

#include <doctor/kernel_checks.h>
#include <doctor/training_checks.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::doctor {
namespace {

using amp::Decision;
using ::testing::HasSubstr;

const c10::Device kGpu(c10::DeviceType::CUDA, 0);

Finding training_with(const std::function<void(Decision&)>& wrong) {
  Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda).tf32(false));
  pretend::wrong_decision() = wrong;
  const Finding finding = check_equal_weights(runtime);
  pretend::wrong_decision() = nullptr;
  return finding;
}

TEST(DoctorWrongDevice, ARightOneHasTheHostsStepsAndTheRowSaysHowClosely) {
  const Finding finding = training_with(nullptr);
  EXPECT_EQ(finding.status, Status::ok) << finding.what;
  EXPECT_THAT(finding.what, HasSubstr("within 0.0001"));
}

TEST(DoctorWrongDevice, AWrongReadingOfOneStepIsNamed) {
  const std::vector<std::pair<std::string, std::function<void(Decision&)>>> faults{
      {"clip factor", [](Decision& made) { made.step.gradient_factor *= 1.01F; }},
      {"clip factor",  // min(ratio, 1) that takes its first argument
       [](Decision& made) {
         made.step.gradient_factor = static_cast<float>(1.0 / (made.grad_norm * made.scale));
       }},
      {"clip factor",  // the kernels write nothing, and no report says so
       [](Decision& made) { made.step.skip = made.step.update == 30; }},
      {"clip factor", [](Decision& made) { made.step.learning_rate_factor *= 0.5F; }},
      {"gradient norm", [](Decision& made) { made.grad_norm *= 1.001; }},
      {"loss scale", [](Decision& made) { made.scale *= 2.0F; }},
      {"update", [](Decision& made) { made.updates += made.updates == 20 ? 1 : 0; }},
      {"skips", [](Decision& made) { made.skipped = made.updates == 38; }},
  };
  for (const auto& [name, fault] : faults) {
    const Finding finding = training_with(fault);
    EXPECT_EQ(finding.status, Status::failure) << name;
    EXPECT_THAT(finding.what, HasSubstr("the " + name + " is "));
    EXPECT_THAT(finding.what, HasSubstr("on the host"));
  }
}

TEST(DoctorWrongDevice, AWrongDecisionIsNamedInItsRowOfKernels) {
  for (const auto& wrong : std::vector<std::function<void(Decision&)>>{
           [](Decision& made) { made.step.gradient_factor *= 1.001F; },
           [](Decision& made) { made.skipped = false; },
           [](Decision& made) { made.grad_norm += 1e-3; },
           [](Decision& made) { made.step.skip = !made.step.skip; },
           [](Decision& made) { made.step.learning_rate_factor = 1.0F; },
           [](Decision& made) { made.step.gradient_limit *= 0.5F; },
           [](Decision& made) { ++made.step.update; }}) {
    pretend::wrong_decision() = wrong;
    const Finding finding = check_kernels(step_kernels(1000), kGpu);
    pretend::wrong_decision() = nullptr;
    EXPECT_EQ(finding.status, Status::failure);
    EXPECT_THAT(finding.what, HasSubstr("decide"));
  }
}

TEST(DoctorWrongDevice, NoKernelOfAStepIsInNoRow) {
  pretend::launches().clear();
  for (const auto& kernels : {update_kernels(1000), cast_kernels(1000), step_kernels(1000)}) {
    for (const Kernel& kernel : kernels) {
      kernel.run(kGpu);
    }
  }
  std::ifstream header(LAUNCH_HEADER);
  const std::string text{std::istreambuf_iterator<char>(header), {}};
  const std::regex launch("Problem (launch_[a-z]+)\\(");
  int found = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), launch), end; at != end; ++at, ++found) {
    EXPECT_EQ(pretend::launches().count((*at)[1]), 1U) << (*at)[1];
  }
  EXPECT_GE(found, 12);
}

}  // namespace
}  // namespace lockstep::doctor
