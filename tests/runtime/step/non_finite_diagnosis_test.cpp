// What is not finite before the first update, or for ever after it, ends in an Error that says
// where from. The umbrella header has all that is needed for it.
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/lockstep.h>
#include <torch/nn/modules/batchnorm.h>

#include "runtime/trainer_runs.h"
#include "runtime/windows_late.h"
#include "test_names.h"

namespace lockstep {
namespace {

bool on_last_rank() {
  return runtime().rank() == runtime().size() - 1;
}

/// The Error that steps of `step` end with, the same on every rank; code ok for none in `limit`.
template <typename OneStep>
Error error_within(int64_t limit, const OneStep& step) {
  Error found("no error", ExitCode::ok);
  for (int64_t i = 0; i < limit && found.code() == ExitCode::ok; ++i) {
    try {
      step();
    } catch (const Error& error) {
      found = error;
    }
  }
  Communicator control = runtime().control();
  for (const std::string& other : control.all_gather_bytes(found.what())) {
    EXPECT_EQ(other, found.what());
  }
  return found;
}

/// A first NaN is an Error of the same step on the host, two windows later on a device.
template <typename OneStep>
std::string first_error(const OneStep& step) {
  const Error error = error_within(1 + 2 * windows_late(), step);
  EXPECT_EQ(error.code(), ExitCode::non_finite);
  EXPECT_THAT(error.what(), HasSubstr("the loss is NaN before the first update"));
  return error.what();
}

/// A block whose second product, wo, leaves fp16's range, as T5's does; then a norm.
struct Block : torch::nn::Module {
  Block()
      : wi(register_module("wi", torch::nn::Linear(4, 8))),
        wo(register_module("wo", torch::nn::Linear(8, 4))) {
    const at::NoGradGuard no_grad;
    wi->weight.fill_(0.5);
    wo->weight.fill_(3e4);
    to(device());
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor out = wo->forward(at::relu(wi->forward(x))).to(at::kFloat);
    return out - out.mean();  // inf - inf
  }
  torch::nn::Linear wi, wo;
};

struct Encoder : torch::nn::Module {
  Encoder() : block(register_module("block", std::make_shared<Block>())) {}
  at::Tensor loss(float input = 10.0F) {
    return block->forward(testing::full({3, 4}, input)).square().mean();
  }
  std::shared_ptr<Block> block;
};

TEST(NonFiniteDiagnosis, NanAtTheFirstForwardIsNamedWithItsCure) {
  const auto scale = amp::LossScalerOptions().init_scale(64);
  for (const Precision& precision : {Precision::O1().loss_scale(scale).wire(at::kFloat),
                                     Precision::O2().loss_scale(scale).wire(at::kFloat)}) {
    const auto model = std::make_shared<Encoder>();
    Trainer trainer(runtime(), model, SGD(1e-9), TrainerOptions().precision(precision));
    const std::string error = first_error(
        [&] { trainer.step([&] { return Loss(model->loss(on_last_rank() ? 10.0F : 0.0F)); }); });
    EXPECT_THAT(error, AllOf(HasSubstr(c10::str("rank ", runtime().size() - 1, ": ")),
                             HasSubstr("made by forward aten::"), HasSubstr("of block.wo (reads"),
                             HasSubstr("keep_fp32(\"block.wo\"), or use bf16")));
    EXPECT_EQ(trainer.diagnosis(), error);
    EXPECT_EQ(trainer.updates(), 0);

    for (const Precision& cure : {precision.keep_fp32("block.wo"), Precision::O1(at::kBFloat16)}) {
      const auto cured = std::make_shared<Encoder>();
      Trainer again(runtime(), cured, SGD(1e-9), TrainerOptions().precision(cure));
      const StepReport report = again.step([&] { return Loss(cured->loss()); });
      EXPECT_TRUE(std::isfinite(report.loss()));
      EXPECT_FALSE(report.skipped());
    }
  }
}

TEST(NonFiniteDiagnosis, ANanLossAfterSkippedWindowsIsNamedToo) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  trainer.step([&] { return scaled_loss(*model, 0, testing::overflow_factor); });
  const std::string error =
      first_error([&] { trainer.step([&] { return scaled_loss(*model, 0, std::nanf("")); }); });
  EXPECT_THAT(error, AllOf(HasSubstr("the number nan of the program"), HasSubstr("aten::mul"),
                           HasSubstr("look where the program computes that number")));
}

TEST(NonFiniteDiagnosis, TheFirstNanOfAForwardThatCommunicatesHangsNobody) {
  auto norm = torch::nn::BatchNorm1d(4);
  const auto model = std::make_shared<Mlp>();
  model->register_module("norm", norm);
  model->to(device());
  convert_sync_batchnorm(*model, runtime().communicator());
  Trainer trainer(runtime(), model, SGD(0.1));
  const std::string error = first_error([&] {
    trainer.step([&] {
      const auto batch = mlp_batch(0, runtime().rank());
      const at::Tensor loss = model->loss(norm->forward(batch.x), batch.y);
      return Loss(on_last_rank() ? (loss * 0.0).log() * 0.0 : loss);
    });
  });
  EXPECT_THAT(error, HasSubstr(c10::str("rank ", runtime().size() - 1, ": ")));
  EXPECT_THAT(error, HasSubstr("made by forward aten::log"));
}

TEST(NonFiniteDiagnosis, AFirstNanThatTheReplayDoesNotShowIsSaidToBeOfAnotherBatch) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(2));
  const auto step = [&](float factor) {
    trainer.step([&] { return scaled_loss(*model, 0, factor); });
  };
  step(std::nanf(""));
  EXPECT_THAT(first_error([&] { step(1.0F); }),
              HasSubstr("run again, with a finite loss, and so are the weights"));
}

TEST(NonFiniteDiagnosis, TheFirstReplayDrawsTheSameRandomNumbers) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  std::vector<float> draws;
  first_error([&] {
    draws.clear();
    trainer.step([&] {
      draws.push_back(at::rand({}).item<float>());
      return scaled_loss(*model, 0, std::nanf(""));
    });
  });
  ASSERT_EQ(draws.size(), 3U);
  EXPECT_EQ(draws[1], draws[0]);
  EXPECT_EQ(draws[2], draws[0]);
}

TEST(NonFiniteDiagnosis, AFirstNanOfALoopWithoutClosuresNamesWeightsOrSaysWhatToDo) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const auto window = [&](float factor) {
    trainer.backward(scaled_loss(*model, 0, factor));
    trainer.update();
  };
  EXPECT_THAT(first_error([&] { window(std::nanf("")); }), HasSubstr("use step(closure)"));

  const auto spoilt = std::make_shared<Mlp>();
  {
    const at::NoGradGuard no_grad;
    spoilt->second->weight[0][0] = std::nanf("");
  }
  Trainer another(runtime(), spoilt, SGD(0.1));
  const std::string error = first_error([&] {
    another.backward(scaled_loss(*spoilt, 0));
    another.update();
  });
  EXPECT_THAT(error, HasSubstr("not finite in the model before the forward: second.weight"));
}

TEST(NonFiniteDiagnosis, ARankWithoutDataHearsOfAFirstNan) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().uneven_data(true));
  const std::string error = first_error([&] {
    if (runtime().rank() == 0) {
      trainer.step([&] { return scaled_loss(*model, 0, std::nanf("")); });
    } else {
      trainer.step_without_data();
    }
  });
  EXPECT_THAT(error, HasSubstr("rank 0: the loss is NaN"));
}

/// The diagnosis of a window that overflows after a clean one.
std::string diagnosis_of(const TrainerOptions& options, const std::function<Loss(Mlp&)>& loss) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(1e-6), TrainerOptions(options).diagnose_after_skips(1));
  trainer.step([&] { return scaled_loss(*model, 0); });
  for (int64_t i = 0; i < 2 + windows_late(); ++i) {
    EXPECT_TRUE(trainer.step([&] { return loss(*model); }).skipped());
  }
  return trainer.diagnosis();
}

TEST(NonFiniteDiagnosis, ANumberOfTheProgramIsBlamedAndNoWireThatIsNotInUse) {
  const volatile double zero = 0.0;
  const auto options = TrainerOptions().precision(Precision::O0());
  const std::string number = diagnosis_of(
      options, [&](Mlp& model) { return Loss(scaled_loss(model, 0).tensor() * (1.0 / zero)); });
  EXPECT_THAT(number, AllOf(HasSubstr("the number inf of the program, not a tensor, was given to "
                                      "forward aten::mul"),
                            HasSubstr("look where the program computes that number"),
                            Not(HasSubstr("wire"))));
  const std::string division = diagnosis_of(
      options, [&](Mlp& model) { return Loss(scaled_loss(model, 0).tensor() / double{zero}); });
  EXPECT_THAT(division, AllOf(HasSubstr("made by forward aten::div"),
                              HasSubstr("a division by zero"), Not(HasSubstr("wire"))));
}

TEST(NonFiniteDiagnosis, TheLossAndTheScaledLossAreExaminedThemselves) {
  const std::string by_hand = diagnosis_of({}, [&](Mlp& model) {
    const at::Tensor loss = scaled_loss(model, 0).tensor();
    loss.detach().fill_(testing::overflow_factor);
    return Loss(loss * loss);
  });
  EXPECT_THAT(by_hand, AllOf(HasSubstr("the loss is inf, though every operator seen made finite"),
                             HasSubstr("memory written by hand"), Not(HasSubstr("wire"))));
  const auto scale = amp::LossScalerOptions().init_scale(65536.0);
  const std::string scaled =
      diagnosis_of(TrainerOptions().precision(Precision::O0().loss_scale(scale)),
                   [&](Mlp& model) { return Loss(scaled_loss(model, 0).tensor() * 1e36); });
  EXPECT_THAT(scaled, AllOf(HasSubstr("times the loss scale"), HasSubstr("is beyond fp32"),
                            HasSubstr("the loss scale is too high for this batch")));
}

/// Skips for ever after a clean update; returns the Error that ends it, and how many were skipped.
std::pair<Error, int64_t> end_of_skips(const TrainerOptions& options) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), options);
  trainer.step([&] { return scaled_loss(*model, 0); });
  int64_t skips = 0;
  const Error error = error_within(100, [&] {
    trainer.step([&] { return scaled_loss(*model, 0, std::nanf("")); });
    ++skips;
  });
  return {error, skips};
}

TEST(SkipBudget, NanForEverEndsWithTheDiagnosisAlsoWithoutALossScale) {
  for (const Precision& precision : {Precision::O0(), Precision::O1(at::kBFloat16)}) {
    const auto [error, skips] = end_of_skips(TrainerOptions().precision(precision));
    EXPECT_EQ(error.code(), ExitCode::non_finite);
    EXPECT_EQ(skips, 20 + windows_late());
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(c10::str(20, " updates in a row were skipped")),
                      HasSubstr("the number nan of the program"), HasSubstr("rank 0")));
  }
}

TEST(SkipBudget, ADynamicScaleMayFallFirst) {
  const auto scale = amp::LossScalerOptions().init_scale(1024.0);
  const auto [error, skips] =
      end_of_skips(TrainerOptions().precision(Precision::O2().loss_scale(scale)));
  EXPECT_EQ(error.code(), ExitCode::non_finite);
  EXPECT_EQ(skips, 26 + windows_late()) << "from 2^10 to 2^-16";
}

TEST(SkipBudget, ZeroAllowsSkipsForEver) {
  const auto scale = amp::LossScalerOptions::fixed(1.0).max_consecutive_skips(0);
  const auto [error, skips] =
      end_of_skips(TrainerOptions().precision(Precision::O0().loss_scale(scale)));
  EXPECT_EQ(error.code(), ExitCode::ok);
  EXPECT_EQ(skips, 100);
}

TEST(SkipBudget, RankZeroWarnsAtAFewPoints) {
  const auto scale = amp::LossScalerOptions::fixed(1.0).max_consecutive_skips(0);
  ::testing::internal::CaptureStderr();
  end_of_skips(TrainerOptions().precision(Precision::O0().loss_scale(scale)));
  const std::string printed = ::testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t at = printed.find("updates in a row"); at != std::string::npos;
       at = printed.find("updates in a row", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, runtime().rank() == 0 ? 4U : 0U) << "at 10, 20, 40 and 80: " << printed;
  if (runtime().rank() == 0) {
    EXPECT_THAT(printed, AllOf(HasSubstr("warning: 10 updates in a row"), HasSubstr(": 80 ")));
  }
}

}  // namespace
}  // namespace lockstep
