// What lockstep::run says of exceptions that are no lockstep::Error.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/runtime.h>
#include <stdlib.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "test_names.h"

namespace lockstep {
namespace {

/// What it prints, on standard error.
std::string printed(const std::function<void()>& body, int code = 1) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(0, nullptr, [&](Runtime&) { body(); }), code);
  return ::testing::internal::GetCapturedStderr();
}

void multiply_wrongly() {
  at::mm(at::ones({8, 5}), at::ones({4, 1}));
}

TEST(RunErrors, RunPrintsALibTorchErrorInOneLine) {
  EXPECT_EQ(printed(multiply_wrongly),
            "rank 0: mat1 and mat2 shapes cannot be multiplied (8x5 and 4x1)\n");
  setenv("LOCKSTEP_BACKTRACE", "1", /*overwrite=*/1);
  EXPECT_THAT(printed(multiply_wrongly), HasSubstr("frame #0"));
  setenv("LOCKSTEP_BACKTRACE", "yes", /*overwrite=*/1);
  EXPECT_THAT(printed(multiply_wrongly, static_cast<int>(ExitCode::usage)),
              HasSubstr("LOCKSTEP_BACKTRACE=yes is not a whole number from 0 to 1"));
  unsetenv("LOCKSTEP_BACKTRACE");
}

TEST(RunErrors, AnExceptionOfAnyTypeEndsTheRunWithTheRanksName) {
  EXPECT_EQ(printed([] { throw 42; }), "rank 0: an exception that is no std::exception\n");
  EXPECT_EQ(printed([] { throw "no data"; }), "rank 0: an exception that is no std::exception\n");
}

TEST(RunErrors, AModelIn16BitsOutsideAutocastIsToldWhatToDo) {
  torch::nn::Linear linear(4, 2);
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(3, 2, 1));
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({4}));
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    linear->to(dtype);
    convolution->to(dtype);
    norm->to(dtype);
    const auto advice = HasSubstr("trainer.autocast()");
    EXPECT_THAT(printed([&] { linear(at::ones({3, 4})); }), advice);
    EXPECT_THAT(printed([&] { linear->forward(at::ones({2, 3, 4})); }), advice);
    EXPECT_THAT(printed([&] { convolution(at::ones({1, 3, 2, 2})); }), advice);
    EXPECT_THAT(printed([&] { norm(at::ones({3, 4})); }), advice);
    EXPECT_THAT(printed([&] { at::bmm(at::ones({1, 2, 2}), at::ones({1, 2, 2}, dtype)); }), advice);
  }
  EXPECT_THAT(printed(multiply_wrongly), Not(HasSubstr("autocast")));
  EXPECT_THAT(printed([] {
                at::mm(at::ones({2, 2}), at::ones({2, 2}, at::kDouble));
              }),
              AllOf(HasSubstr("dtype"), Not(HasSubstr("autocast"))));
}

}  // namespace
}  // namespace lockstep
