// What one rank cannot make of a Trainer is an Error on every rank, and another one can be made.
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <torch/optim/sgd.h>

#include <new>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// The Error of a Trainer whose optimizer `fail` keeps rank 1 from making.
Error error_of_making(const std::shared_ptr<Mlp>& model, const std::function<void()>& fail) {
  const TorchOptimizer optimizer([&](std::vector<at::Tensor> masters) {
    if (runtime().rank() == 1) {
      fail();
    }
    return std::make_unique<torch::optim::SGD>(std::move(masters), 0.1);
  });
  try {
    const Trainer trainer(runtime(), model, optimizer,
                          TrainerOptions().precision(half_precision()));
  } catch (const Error& error) {
    return error;
  }
  return Error("it was made", ExitCode::ok);
}

void expect_one_can_be_made(const std::shared_ptr<Mlp>& model) {
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(half_precision()));
  EXPECT_FALSE(trainer.step([&] { return scaled_loss(*model, 0); }).skipped());
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(TrainerMaking, WithoutMemoryOnOneRankIsOneErrorWithATableOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  const Error error = error_of_making(model, [] { at::empty({int64_t{1} << 50}, at::kByte); });
  EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  EXPECT_THAT(error.what(), HasSubstr("rank 1: out of memory while the Trainer is made: "));
  EXPECT_THAT(error.what(), HasSubstr("you tried to allocate 1125899906842624 bytes"));
  EXPECT_THAT(error.what(), HasSubstr("lockstep holds 2 KiB: weights 512 B, masters 1 KiB, "
                                      "gradients 512 B\n"));
  EXPECT_THAT(error.what(), HasSubstr("What needs less: smaller micro-batches"));
  expect_one_can_be_made(model);
}

TEST(TrainerMaking, WithAnyExceptionOnOneRankIsAnErrorOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  const Error error =
      error_of_making(model, [] { throw std::runtime_error("no such setting: nesterof"); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.what(), HasSubstr("rank 1: no such setting: nesterof"));
  expect_one_can_be_made(model);
}

/// Fails once on the last rank, as where it finds no memory for its state.
class FailingSgd final : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    if (!has_failed_ && runtime().rank() == runtime().size() - 1) {
      has_failed_ = true;
      throw std::bad_alloc();
    }
    return SGD::step(std::move(closure));
  }

 private:
  bool has_failed_ = false;
};

TEST(TrainerMaking, WithOffloadedStatesOnTheHostIsRefused) {
  if (!testing::device().is_cpu()) {
    return;
  }
  const auto model = std::make_shared<Mlp>();
  const std::string text = testing::error_of([&] {
    Trainer trainer(runtime(), model, AdamW(1e-3), TrainerOptions().offload_states(true));
  });
  EXPECT_THAT(text, ::testing::HasSubstr("offload_states: the model is on the CPU"));
}

TEST(TorchOptimizerStep, ThatThrowsOnOneRankIsOneErrorOnEveryRank) {
  const TorchOptimizer optimizer([](std::vector<at::Tensor> masters) {
    return std::make_unique<FailingSgd>(std::move(masters), 0.1);
  });
  const auto model = std::make_shared<Mlp>();
  {
    Trainer trainer(runtime(), model, optimizer, TrainerOptions().precision(half_precision()));
    const auto error_of_step = [&] {
      try {
        trainer.step([&] { return scaled_loss(*model, 0); });
      } catch (const Error& error) {
        return error;
      }
      return Error("it went on", ExitCode::ok);
    };
    const Error error = error_of_step();
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
    EXPECT_THAT(error.what(), HasSubstr("the optimizer's step"));
    EXPECT_THAT(error.what(), HasSubstr(c10::str("rank ", runtime().size() - 1)));
    // The others had made theirs: the next window finds that, on a device two updates later.
    ExitCode code = error_of_step().code();
    for (int update = 0; update < 3 && code == ExitCode::ok && !testing::device().is_cpu();
         ++update) {
      code = error_of_step().code();
    }
    EXPECT_EQ(code, ExitCode::diverged);
  }
  expect_one_can_be_made(std::make_shared<Mlp>());
}

}  // namespace
}  // namespace lockstep
