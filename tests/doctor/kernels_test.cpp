// Kernels of lockstep doctor on the CPU or on the device of this program.
#include "test_device.h"

#include <ATen/ATen.h>
#include <doctor/kernel_checks.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const c10::Device kGpu(c10::DeviceType::CUDA, 0);

std::vector<Kernel> all_kernels(int64_t size) {
  std::vector<Kernel> kernels = update_kernels(size);
  for (const auto& more : {cast_kernels(size), step_kernels(size)}) {
    kernels.insert(kernels.end(), more.begin(), more.end());
  }
  return kernels;
}

TEST(DoctorKernels, OnTheDeviceHaveTheValuesOfTheHost) {
  for (const c10::Device device : {kGpu, c10::Device(c10::kCPU)}) {
    const Finding finding = check_kernels(all_kernels(5003), device);
    EXPECT_EQ(finding.status, Status::ok) << finding.what;
    EXPECT_THAT(finding.what, HasSubstr("34 kernels"));
  }
}

TEST(DoctorKernels, EachWrongNumberOfEachResultIsFound) {
  for (const Kernel& kernel : all_kernels(1000)) {
    const std::vector<at::Tensor> right = kernel.run(kGpu);
    for (size_t output = 0; output < right.size(); ++output) {
      Kernel wrong = kernel;
      wrong.run = [&](c10::Device device) {
        std::vector<at::Tensor> outputs = kernel.run(device);
        if (!device.is_cpu()) {
          const at::Tensor& last = outputs[output];
          last.narrow(0, last.numel() - 1, 1).mul_(1.1).add_(1e-2);  // one element
        }
        return outputs;
      };
      EXPECT_EQ(check_kernels({wrong}, kGpu).status, Status::failure) << kernel.name << output;
    }
  }
}

TEST(DoctorKernels, OneWithWrongArithmeticIsNamedAndNoOther) {
  for (const char* name : {"AdamW", "Lion moments bf16", "cast Half to Float", "average"}) {
    std::vector<Kernel> kernels = all_kernels(1000);
    bool planted = false;
    for (Kernel& kernel : kernels) {
      if (kernel.name == name) {
        planted = true;
        kernel.run = [right = kernel.run](c10::Device device) {
          std::vector<at::Tensor> outputs = right(device);
          if (!device.is_cpu()) {
            outputs[0].narrow(0, 999, 1).mul_(1.001);  // one element of a thousand
          }
          return outputs;
        };
      }
    }
    EXPECT_TRUE(planted) << name;
    const Finding finding = check_kernels(kernels, kGpu);
    EXPECT_EQ(finding.status, Status::failure);
    EXPECT_EQ(finding.what, std::string("wrong results of: ") + name);
    EXPECT_THAT(finding.fix, HasSubstr("do not train on this device"));
  }
}

TEST(DoctorKernels, SpeedsAreMeasuredAndSlowOnesNamedWithTheFix) {
  for (const c10::Device device : {kGpu, c10::Device(c10::kCPU)}) {
    const Speeds speeds = measure_speeds(device, 4096);
    EXPECT_GT(speeds.copy, 0.0);
    EXPECT_GT(speeds.update, 0.0);
    EXPECT_EQ(speeds.upload > 0.0, !device.is_cpu());
  }
  EXPECT_EQ(judge_speeds({2000.0, 50.0, 1700.0}).status, Status::ok);
  EXPECT_EQ(judge_speeds({20.0, 0.0, 15.0}).status, Status::ok) << "a host";
  const Finding link = judge_speeds({2000.0, 3.0, 1700.0});
  EXPECT_EQ(link.status, Status::warning);
  EXPECT_THAT(link.fix, HasSubstr("nvidia-smi -q -d PCI"));
  const Finding update = judge_speeds({2000.0, 50.0, 100.0});
  EXPECT_EQ(update.status, Status::warning);
  EXPECT_THAT(update.fix, HasSubstr("another program"));
}

}  // namespace
}  // namespace lockstep::doctor
