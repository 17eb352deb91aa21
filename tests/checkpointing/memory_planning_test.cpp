// TrainerOptions::memory: the plain weights, bit for bit, within a budget in bytes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "error_of.h"
#include "test_names.h"
#include "test_runtime.h"
#include "trained.h"

namespace lockstep {
namespace {

using torch::nn::Sequential;

constexpr int64_t usual_batch = 256;
constexpr int64_t large_batch = 1024;  // activations of 128 KiB, which are worth moving
constexpr int steps = 8;

/// A stem, blocks with large activations, and a head whose output is larger than theirs.
struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(11);
    stem = register_module("stem", torch::nn::Linear(8, 32));
    blocks = register_module("blocks", Sequential());
    for (int block = 0; block < 6; ++block) {
      blocks->push_back(torch::nn::Linear(32, 32));
      blocks->push_back(torch::nn::Tanh());
    }
    norm = register_module("norm", torch::nn::BatchNorm1d(32));
    head = register_module("head", torch::nn::Linear(32, 128));
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& x) { return head(norm(blocks->forward(stem(x)))); }

  torch::nn::Linear stem{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Sequential blocks{nullptr};
};

/// Without a chain.
struct Small : torch::nn::Module {
  Small() {
    torch::manual_seed(12);
    first = register_module("first", torch::nn::Linear(8, 64));
    last = register_module("last", torch::nn::Linear(64, 8));
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& x) { return last(first(x).tanh()); }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

struct Measured : Trained {
  int64_t peak = 0;    // of this rank: what is held, and the most of a micro-batch since the plan
  int64_t before = 0;  // the same until the plan
};

int ranks_of_node() {
  return testing::device().is_cpu() ? runtime().communicator().local_size() : 1;
}

template <class Net>
Measured trained(std::shared_ptr<Net> net, const TrainerOptions& options,
                 int64_t batch = usual_batch) {
  Measured run;
  Trainer trainer(runtime(), net, AdamW(1e-2), options);
  for (int step = 0; step < steps; ++step) {
    torch::manual_seed(100 + static_cast<uint64_t>(10 * step + runtime().rank()));
    const at::Tensor x = testing::randn({batch, 8});
    for (int64_t part = 0; part < options.accumulate(); ++part) {
      const MemoryMeter meter(testing::device().type());
      const bool is_planned = !trainer.memory_report().empty();
      trainer.step([&]() -> Loss { return net->forward(x).to(at::kFloat).square().mean(); });
      const int64_t held = total(trainer.memory()) - trainer.memory().on_host;
      int64_t& most = is_planned ? run.peak : run.before;
      most = std::max(most, held + meter.peak());
    }
  }
  run.report = trainer.memory_report();
  for (const auto& master : trainer.masters()) {
    run.tensors.push_back(master.second.detach().cpu().clone());
  }
  for (const at::Tensor& buffer : net->buffers()) {
    run.tensors.push_back(buffer.clone());
  }
  return run;
}

/// The smallest budget that the Trainer itself names.
int64_t smallest_budget(const TrainerOptions& options, int64_t batch = usual_batch) {
  int64_t budget = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::string refusal;
    try {
      trained(std::make_shared<Net>(), TrainerOptions(options).memory(budget), batch);
      return budget;
    } catch (const Error& error) {
      refusal = error.what();
    }
    const size_t bytes = refusal.find(" bytes)");
    budget = std::stoll(refusal.substr(refusal.rfind('(', bytes) + 1));
  }
  ADD_FAILURE() << "no budget is large enough";
  return budget;
}

/// Several buckets, so that states that pass through two of them need less memory than all.
TrainerOptions small_buckets() {
  return TrainerOptions().buckets(BucketOptions().first_bucket_bytes(4096).bucket_bytes(4096));
}

TEST(MemoryBudgets, EveryPrecisionEndsAtThePlainWeights) {
  for (const Precision& precision : {Precision::O0(), Precision::O1(), Precision::O2()}) {
    for (const int64_t accumulate : {1, 2}) {
      const auto options = small_buckets().precision(precision).accumulate(accumulate);
      const Measured plain = trained(std::make_shared<Net>(), options);
      EXPECT_EQ(plain.report, "");
      const int64_t least = smallest_budget(options);
      for (const int64_t budget : {least, least * 11 / 10, least * 100}) {
        const Measured ours =
            trained(std::make_shared<Net>(), TrainerOptions(options).memory(budget));
        expect_equal(plain, ours, precision.describe());
        EXPECT_THAT(ours.report, AllOf(HasSubstr("memory  budget "), HasSubstr("plan "),
                                       HasSubstr(", measured ")));
      }
    }
  }
}

TEST(MemoryBudgets, ATightOneIsKeptAndALargeOneRecomputesNothing) {
  const int64_t least = smallest_budget(small_buckets());
  const Measured tight = trained(std::make_shared<Net>(), small_buckets().memory(least * 21 / 20));
  const Measured large = trained(std::make_shared<Net>(), small_buckets().memory(least * 100));
  EXPECT_LE(std::max(tight.before, tight.peak), least * 21 / 20 / ranks_of_node());
  EXPECT_GT(large.peak, tight.peak);
  EXPECT_THAT(tight.report, HasSubstr("("));
  EXPECT_THAT(large.report, Not(HasSubstr("states     on the host")));
  const Measured smallest = trained(std::make_shared<Net>(), small_buckets().memory(least));
  EXPECT_LE(std::max(smallest.before, smallest.peak), least / ranks_of_node());
  const bool on_host = !testing::device().is_cpu();
  EXPECT_EQ(smallest.report.find("states     on the host") != std::string::npos, on_host);
  EXPECT_THAT(large.report, HasSubstr("plan 0 1 2 3 4 5 6 7 8 9 10 11, 0 % of"));
}

TEST(MemoryBudgets, OnADeviceActivationsThatHaveNoRoomThereMoveToTheHost) {
  if (testing::device().is_cpu()) {
    GTEST_SKIP() << "on the CPU there is nowhere to move them";
  }
  for (const int64_t accumulate : {1, 2}) {
    const auto options = small_buckets().accumulate(accumulate);
    const Measured plain = trained(std::make_shared<Net>(), options, large_batch);
    const int64_t least = smallest_budget(options, large_batch);
    const Measured tight =
        trained(std::make_shared<Net>(), TrainerOptions(options).memory(least), large_batch);
    const Measured large =
        trained(std::make_shared<Net>(), TrainerOptions(options).memory(least * 100), large_batch);
    expect_equal(plain, tight, "on the host");
    expect_equal(plain, large, "on the device");
    EXPECT_THAT(tight.report, HasSubstr("of activations to the host"));
    EXPECT_THAT(large.report, Not(HasSubstr("of activations to the host")));
    EXPECT_LE(std::max(tight.before, tight.peak), least) << tight.report;
    // The least plan alone needs more: it keeps the input of each region.
    EXPECT_GT(large.peak, least);
  }
}

TEST(MemoryBudgets, OneThatIsTooSmallNamesTheSmallestOnEveryRank) {
  const std::string nothing = error_of([] {
    Trainer(runtime(), std::make_shared<Net>(), AdamW(1e-2), TrainerOptions().memory("1 KiB"));
  });
  EXPECT_THAT(nothing, AllOf(HasSubstr("TrainerOptions.memory(1 KiB) is too small"),
                             HasSubstr("between two micro-batches needs")));
  const int64_t least = smallest_budget(TrainerOptions());
  const std::string step = error_of(
      [&] { trained(std::make_shared<Net>(), TrainerOptions().memory(least - ranks_of_node())); });
  EXPECT_THAT(step,
              AllOf(HasSubstr("as few activations as possible needs"), HasSubstr("accumulate")));
}

TEST(MemoryBudgets, AModelWithoutAChainTrainsAndRecomputesNothing) {
  const Measured plain = trained(std::make_shared<Small>(), TrainerOptions());
  const Measured ours = trained(std::make_shared<Small>(), TrainerOptions().memory("1 GiB"));
  expect_equal(plain, ours, "no chain");
  EXPECT_THAT(ours.report, HasSubstr("recompute  nothing"));
}

TEST(MemoryBudgets, ExcludeABudgetOfActivationsAndGraphs) {
  EXPECT_THAT(
      error_of([] { TrainerOptions().memory("1 GiB").activation_budget("1 GiB").validate(); }),
      HasSubstr("leave activation_budget out"));
  EXPECT_THAT(error_of([] { TrainerOptions().memory("1 GiB").cuda_graph(true).validate(); }),
              HasSubstr("measures on the host"));
  EXPECT_THAT(error_of([] { MemoryBudget("much"); }), HasSubstr("memory budget 'much'"));
  EXPECT_EQ(MemoryBudget("20 GiB").bytes(), int64_t{20} << 30);
}

}  // namespace
}  // namespace lockstep
