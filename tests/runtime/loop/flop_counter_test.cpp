// Floating-point operations of a step, and what share of the processor's peak they are. The numbers
// are those of torch.utils.flop_counter, but for groups, whose backward it overcounts.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <lockstep/runtime/flop_counter.h>
#include <lockstep/runtime/run_log.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Of a call and of the backward of its sum.
std::pair<int64_t, int64_t> flops_of(const std::function<at::Tensor()>& call) {
  FlopCounter counter;
  const at::Tensor result = call();
  const int64_t forward = counter.flops();
  result.sum().backward();
  return {forward, counter.flops() - forward};
}

at::Tensor input(at::IntArrayRef sizes) {
  return at::ones(sizes).requires_grad_();
}

TEST(FlopCounter, MatrixProductsCountTwoForEachMultiplyAndAdd) {
  const auto expect = [](int64_t forward, const std::function<at::Tensor()>& call) {
    EXPECT_EQ(flops_of(call), std::pair(forward, 2 * forward));
  };
  expect(2 * 3 * 4 * 5, [] { return at::mm(input({3, 4}), input({4, 5})); });
  expect(2 * 3 * 4 * 5, [] { return at::linear(input({3, 4}), input({5, 4}), input({5})); });
  expect(2 * 6 * 3 * 4 * 5, [] { return at::bmm(input({6, 3, 4}), input({6, 4, 5})); });
  expect(2 * 6 * 3 * 4 * 5, [] {
    return at::baddbmm(input({6, 3, 5}), input({6, 3, 4}), input({6, 4, 5}));
  });
  expect(2 * 6 * 3 * 4 * 5, [] { return at::matmul(input({2, 3, 3, 4}), input({2, 3, 4, 5})); });
}

TEST(FlopCounter, ConvolutionsCountEachPlaceOfTheirKernel) {
  const int64_t strided = 2 * (2 * 4 * 4) * (4 * 3 * 3 * 3);
  EXPECT_EQ(flops_of([] {
              return at::conv2d(input({2, 3, 8, 8}), input({4, 3, 3, 3}), {}, 2, 1);
            }),
            std::pair(strided, 2 * strided));
  EXPECT_EQ(flops_of([] {
              return at::conv2d(at::ones({2, 3, 8, 8}), input({4, 3, 3, 3}), {}, 2, 1);
            }),
            std::pair(strided, strided));
  const int64_t grouped = 2 * (1 * 14) * (4 * 1 * 3);
  EXPECT_EQ(flops_of([] {
              return at::conv1d(input({1, 2, 14}), input({4, 1, 3}), {}, 1, 2, /*dilation=*/2, 2);
            }),
            std::pair(grouped, 2 * grouped));
  const int64_t transposed = 2 * (2 * 4 * 4) * (3 * 5 * 2 * 2);
  EXPECT_EQ(flops_of([] {
              return at::conv_transpose2d(input({2, 3, 4, 4}), input({3, 5, 2, 2}), {}, 2);
            }),
            std::pair(transposed, 2 * transposed));
}

TEST(FlopCounter, TheConvolutionOfTracedTorchScriptIsCounted) {
  const int64_t strided = 2 * (2 * 4 * 4) * (4 * 3 * 3 * 3);
  EXPECT_EQ(flops_of([] {
              return at::_convolution(input({2, 3, 8, 8}), input({4, 3, 3, 3}), {}, {2, 2}, {1, 1},
                                      {1, 1}, false, {0, 0}, 1, false, false, true, true);
            }),
            std::pair(strided, 2 * strided));
}

TEST(FlopCounter, CountsOnAfterAnOperatorThatRefusesItsInputs) {
  const FlopCounter counter;
  EXPECT_ANY_THROW(at::mm(at::ones({2, 3}), at::ones({})));
  EXPECT_ANY_THROW(at::conv2d(at::ones({2, 3, 8, 8}), at::ones({4, 3, 3, 3}), {}, /*stride=*/0));
  EXPECT_EQ(at::scaled_dot_product_attention(at::ones({1, 1, 4, 0}), at::ones({1, 1, 4, 0}),
                                             at::ones({1, 1, 4, 0}))
                .numel(),
            0);
  EXPECT_EQ(counter.flops(), 0);
  at::mm(at::ones({2, 2}), at::ones({2, 2}));
  EXPECT_EQ(counter.flops(), 16);
}

TEST(FlopCounter, AttentionCountsItsProductsAndInBackwardTheScoresAgain) {
  const int64_t scores = 2 * 4 * 16 * 16;
  EXPECT_EQ(flops_of([] {
              return at::scaled_dot_product_attention(input({2, 4, 16, 8}), input({2, 4, 16, 8}),
                                                      input({2, 4, 16, 8}));
            }),
            std::pair(2 * scores * 2 * 8, 2 * scores * 5 * 8));
}

TEST(FlopCounter, RecurrentLayersCountTheirMatrices) {
  torch::nn::LSTM layers(torch::nn::LSTMOptions(6, 5).num_layers(2));
  const int64_t forward = 2 * (7 * 3) * (4 * 5) * ((6 + 5) + (5 + 5));
  const auto found = flops_of([&] {
    return std::get<0>(
        layers->forward(input({7, 3, 6}), std::make_tuple(input({2, 3, 5}), input({2, 3, 5}))));
  });
  EXPECT_EQ(found, std::pair(forward, 2 * forward));
}

TEST(FlopCounter, WhatACheckpointComputesAgainDoesNotCount) {
  const at::Tensor weight = input({4, 4});
  const auto twice = [&](const at::Tensor& x) {
    return at::mm(at::tanh(at::mm(x, weight)), weight);
  };
  const auto plain = flops_of([&] { return twice(input({3, 4})); });
  EXPECT_EQ(flops_of([&] { return checkpoint(twice, input({3, 4})); }), plain);
  EXPECT_EQ(plain.second, 2 * plain.first);
}

TEST(FlopCounter, MeasuringAChainForItsBudgetDoesNotCount) {
  torch::nn::Linear first(4, 8);
  torch::nn::Linear second(8, 2);
  const auto plain = flops_of([&] { return second->forward(first->forward(input({3, 4}))); });
  const PlannedChain chain({chain_stage("first", first), chain_stage("second", second)});
  chain.set_budget("1 GiB");
  EXPECT_EQ(flops_of([&] { return chain(input({3, 4})); }), plain);
  EXPECT_TRUE(chain.planned()->predicted.has_value());
}

TEST(FlopCounter, SeesItsOwnThreadWhileItLives) {
  FlopCounter counter;
  std::thread([] {
    const FlopCounter own;
    at::mm(at::ones({8, 8}), at::ones({8, 8}));
    EXPECT_EQ(own.flops(), 2 * 8 * 8 * 8);
  }).join();
  EXPECT_EQ(counter.flops(), 0);
  EXPECT_THAT(error_of([] { static_cast<void>(FlopCounter()); }),
              HasSubstr("another one counts on this thread"));
  at::mm(at::ones({2, 2}), at::ones({2, 2}));
  EXPECT_EQ(counter.flops(), 16);
}

TEST(FlopCounter, ThePeakIsMeasuredAndNotCounted) {
  const FlopCounter counter;
  const double peak = measure_peak_flops(c10::kCPU, at::kFloat);
  EXPECT_GT(peak, 1e7);
  EXPECT_LT(peak, 1e17);
  EXPECT_EQ(counter.flops(), 0);
}

/// The last row of a log of four updates of an Mlp.
nlohmann::json row_with(const RunLogOptions& options, int64_t accumulate = 1) {
  const SharedFolder folder;
  auto model = (at::manual_seed(5), std::make_shared<Mlp>());
  Trainer trainer(runtime(), model, SGD(0.01), TrainerOptions().accumulate(accumulate));
  {
    RunLog log(trainer, folder.file("log"), RunLogOptions(options).log_every(2));
    for (int64_t step = 0; step < 4 * accumulate; ++step) {
      log.step(trainer.step([&] { return scaled_loss(*model, step); }));
    }
  }
  meet();
  nlohmann::json row;
  std::ifstream file(folder.file("log/log.jsonl"));
  for (std::string line; std::getline(file, line);) {
    row = nlohmann::json::parse(line);
  }
  return row;
}

/// Five rows in 4-8-2: forward; then the gradients of both weights and of the hidden layer.
constexpr int64_t kMlpFlops = (2 * 5) * (4 * 8 + 8 * 2) * 2 + (2 * 5) * (8 * 2);

double flops_per_update(const nlohmann::json& row) {
  return row["flops_per_second"].get<double>() / row["updates_per_second"].get<double>();
}

TEST(RunLogFlops, TheFirstWindowIsCounted) {
  for (const int64_t accumulate : {1, 3}) {
    const auto row = row_with(RunLogOptions().mfu(true).peak_flops(1e9), accumulate);
    const auto expected = static_cast<double>(accumulate * kMlpFlops);
    EXPECT_NEAR(flops_per_update(row) / expected, 1.0, 1e-9);
    EXPECT_NEAR(row["mfu"].get<double>() / (row["flops_per_second"].get<double>() / 1e9), 1.0,
                1e-9);
  }
}

TEST(RunLogFlops, AreThoseOfTheOptionWhereItHasSome) {
  const auto row = row_with(RunLogOptions().mfu(true).flops_per_update(5e6));
  EXPECT_NEAR(flops_per_update(row) / 5e6, 1.0, 1e-9);
  EXPECT_GT(row["mfu"].get<double>(), 0.0);
}

TEST(RunLogFlops, AreNotInARowUnlessAskedFor) {
  const auto row = row_with(RunLogOptions());
  EXPECT_FALSE(row.contains("mfu"));
  EXPECT_FALSE(row.contains("flops_per_second"));
}

TEST(RunLogFlops, APeakThatARankCannotMeasureIsAnErrorOfEveryRank) {
  auto model = (at::manual_seed(5), std::make_shared<Mlp>());
  const Trainer trainer(runtime(), model, SGD(0.01), {});
  const SharedFolder folder;
  const auto usual = c10::get_default_dtype();
  if (runtime().rank() == runtime().size() - 1) {
    c10::set_default_dtype(caffe2::TypeMeta::Make<bool>());  // of which there is no product
  }
  const std::string message =
      error_of([&] { RunLog(trainer, folder.file("log"), RunLogOptions().mfu(true)); });
  c10::set_default_dtype(usual);
  EXPECT_THAT(message, HasSubstr("measuring the peak of the processors"));
}

TEST(RunLogFlops, ABadOptionIsRefused) {
  EXPECT_THAT(error_of([] { row_with(RunLogOptions().flops_per_update(-1)); }),
              HasSubstr("flops_per_update must be >= 0"));
  EXPECT_THAT(error_of([] { row_with(RunLogOptions().peak_flops(-1)); }),
              HasSubstr("peak_flops must be >= 0"));
}

}  // namespace
}  // namespace lockstep
