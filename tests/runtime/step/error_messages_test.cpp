// One Error on every rank with the exit code of its cause, in words that say what to do.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <stdlib.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "runtime/windows_late.h"
#include "test_names.h"

namespace lockstep {
namespace {

int last_rank() {
  return runtime().size() - 1;
}

/// The Error that `body` throws on this rank; the same text and code on every rank.
template <typename Body>
Error shared_error_of(const Body& body) {
  Error found("no lockstep::Error was thrown", ExitCode::ok);
  try {
    body();
  } catch (const Error& error) {
    found = error;
  }
  Communicator control = runtime().control();
  const std::string mine = c10::str(static_cast<int>(found.code()), " ", found.what());
  for (const std::string& other : control.all_gather_bytes(mine)) {
    EXPECT_EQ(other, mine);
  }
  return found;
}

/// What all ranks throw where `fail` runs in the closures of some.
Error error_of_closure(const std::function<void()>& fail, bool on_all_ranks = false) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  return shared_error_of([&] {
    trainer.step([&] {
      if (on_all_ranks || runtime().rank() == last_rank()) {
        fail();
      }
      return scaled_loss(*model, 0);
    });
    if (windows_late() > 0) {
      trainer.abandon();  // there the other ranks hear of it after the window
    }
  });
}

struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(ErrorMessages, TheRankThatThrowsGetsTheErrorOfTheOthers) {
  const Error error = error_of_closure([] { throw OwnError("no such file: batch.bin"); });
  EXPECT_EQ(error.what(), c10::str("rank ", last_rank(), ": no such file: batch.bin"));
  EXPECT_EQ(error.code(), ExitCode::usage);
}

TEST(ErrorMessages, TheExceptionItselfIsNestedWhereItWasThrown) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  bool nested = false;
  try {
    trainer.step([&]() -> Loss { throw OwnError("why"); });
  } catch (const Error& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (const OwnError& own) {
      nested = std::string(own.what()) == "why";
    }
  }
  EXPECT_TRUE(nested);
}

TEST(ErrorMessages, TheCodeOfTheCauseComesOutOfAClosure) {
  const auto code_of = [](const std::function<void()>& fail) {
    return error_of_closure(fail).code();
  };
  for (const ExitCode code :
       {ExitCode::usage, ExitCode::environment, ExitCode::data, ExitCode::snapshot,
        ExitCode::diverged, ExitCode::non_finite, ExitCode::out_of_memory, ExitCode::preempted}) {
    EXPECT_EQ(code_of([code] { throw Error("made up", code); }), code);
  }
  EXPECT_EQ(code_of([] { throw std::bad_alloc(); }), ExitCode::out_of_memory);
  EXPECT_EQ(code_of([] { at::empty({int64_t{1} << 50}, at::kByte); }), ExitCode::out_of_memory);
}

/// A product of sizes that do not fit.
void multiply_wrongly() {
  at::mm(at::ones({8, 5}), at::ones({4, 1}));
}

TEST(ErrorMessages, ALibTorchErrorHasNoBacktraceAndRanksThatSayTheSameAreNamedTogether) {
  const Error error = error_of_closure(multiply_wrongly, /*on_all_ranks=*/true);
  const std::string ranks =
      runtime().size() == 1 ? "rank 0: " : c10::str("ranks 0-", last_rank(), ": ");
  EXPECT_EQ(error.what(), ranks + "mat1 and mat2 shapes cannot be multiplied (8x5 and 4x1)");
}

TEST(ErrorMessages, TheBacktraceComesOnRequest) {
  setenv("LOCKSTEP_BACKTRACE", "1", /*overwrite=*/1);
  const Error error = error_of_closure(multiply_wrongly);
  unsetenv("LOCKSTEP_BACKTRACE");
  EXPECT_THAT(error.what(), AllOf(HasSubstr("mat1 and mat2 shapes"), HasSubstr("frame #0")));
}

TEST(ErrorMessages, OtherDataThanTheSnapshotsIsCode10WhereverTheLoaderIsMade) {
  const SharedFolder folder;
  {
    TrainingRun run(runtime(), {});
    run.trainer.resume(folder.file("run"));
    run.train_to(2);
    run.trainer.save();
  }
  Recipe recipe;
  recipe.samples += 1;
  {
    TrainingRun other(runtime(), recipe);  // its loader is made before resume()
    const Error early = shared_error_of([&] { other.trainer.resume(folder.file("run")); });
    EXPECT_EQ(early.code(), ExitCode::data);
    EXPECT_THAT(early.what(), HasSubstr("went over 43 samples, this one has 44"));
  }
  const auto model = std::make_shared<testing::Awkward>();
  Trainer trainer(runtime(), model, AdamW(1e-2));
  trainer.resume(folder.file("run"));
  const Error late = shared_error_of([&] {
    runtime().loader(testing::Numbered{44}, LoaderOptions().batch_size(3).shuffle(true));
  });
  EXPECT_EQ(late.code(), ExitCode::data);
  EXPECT_NO_THROW(
      runtime().loader(testing::Numbered{43}, LoaderOptions().batch_size(3).shuffle(true)));
}

/// A dataset of which one rank cannot read a sample.
struct Unreadable : testing::Numbered {
  std::function<void()> fail;
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    if (runtime().rank() == last_rank()) {
      fail();
    }
    return Numbered::get(index);
  }
};

TEST(ErrorMessages, TheCodeOfASampleThatOneRankCannotReadIsEveryRanks) {
  if (runtime().size() == 1) {
    return;  // nothing is compared
  }
  const auto error = [](std::function<void()> fail) {
    return shared_error_of([&] {
      runtime().loader(Unreadable{{43}, std::move(fail)}, LoaderOptions().batch_size(3));
    });
  };
  for (const ExitCode code : {ExitCode::environment, ExitCode::data, ExitCode::out_of_memory}) {
    const Error found = error([code] { throw Error("made up", code); });
    EXPECT_EQ(found.what(), c10::str("rank ", last_rank(), ": sample 0 failed: made up"));
    EXPECT_EQ(found.code(), code);
  }
  EXPECT_EQ(error([] { throw std::runtime_error("made up"); }).code(), ExitCode::data);
  EXPECT_EQ(error([] { throw std::bad_alloc(); }).code(), ExitCode::out_of_memory);
}

TEST(ErrorMessages, TheCodeOfASampleComesOutOfTheLoader) {
  const auto code_of = [](std::function<void()> fail, int workers) {
    auto loader =
        runtime().loader(Unreadable{{43}, std::move(fail)},
                         LoaderOptions().batch_size(3).compare_ranks(false).workers(workers));
    ExitCode code = ExitCode::ok;
    try {
      for (const auto& batch : loader) {
        EXPECT_NE(runtime().rank(), last_rank()) << batch.first.sizes();
        break;
      }
    } catch (const Error& error) {
      code = error.code();
    }
    return code;
  };
  for (const int workers : {0, 2}) {
    const auto expected = [](ExitCode code) {
      return runtime().rank() == last_rank() ? code : ExitCode::ok;
    };
    for (const ExitCode code : {ExitCode::environment, ExitCode::data, ExitCode::out_of_memory}) {
      EXPECT_EQ(code_of([code] { throw Error("made up", code); }, workers), expected(code));
    }
    EXPECT_EQ(code_of([] { throw std::bad_alloc(); }, workers), expected(ExitCode::out_of_memory));
    EXPECT_EQ(code_of([] { throw std::runtime_error("made up"); }, workers),
              expected(ExitCode::data));
  }
}

TEST(ErrorMessages, MemoryThatUnscalingOfOneRankDidNotGetIsCode23) {
  const at::Tensor weight = at::ones({3}).requires_grad_(true);
  torch::optim::SGD optimizer(std::vector<at::Tensor>{weight}, torch::optim::SGDOptions(0.1));
  amp::LossScaler scaler({}, runtime().control());
  scaler.scale(weight.sum()).backward();
  if (runtime().rank() == last_rank()) {
    const int64_t entries = int64_t{1} << 50;  // what their sum needs, no machine has
    weight.mutable_grad() = at::_sparse_coo_tensor_unsafe(
        at::zeros({1, 1}, at::kLong).expand({1, entries}), at::zeros({1}).expand({entries}), {3});
  }
  const Error error = shared_error_of([&] { scaler.step(optimizer); });
  EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  EXPECT_THAT(error.what(), ::testing::StartsWith(c10::str("rank ", last_rank(), ": ")));
}

TEST(ErrorMessages, WeightsThatDoNotFitAreCode11) {
  const SharedFolder folder;
  {
    TrainingRun run(runtime(), {});
    run.trainer.resume(folder.file("run"));
    run.train_to(1);
    run.trainer.save();
  }
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  EXPECT_EQ(shared_error_of([&] { trainer.resume(folder.file("run")); }).code(),
            ExitCode::snapshot);
  EXPECT_EQ(shared_error_of([&] { trainer.load_weights(folder.file("run")); }).code(),
            ExitCode::snapshot);
}

/// A disk on which no file can be made once `fail` is set.
struct FailingFiles : snapshot::FileSystem {
  void make_folder(const std::string& path) override { real->make_folder(path); }
  std::unique_ptr<snapshot::OutputFile> create_file(const std::string& path, mode_t mode) override {
    if (fail) {
      fail();
    }
    return real->create_file(path, mode);
  }
  void rename(const std::string& from, const std::string& to) override { real->rename(from, to); }
  void sync_folder(const std::string& path) override { real->sync_folder(path); }
  void remove_file(const std::string& path) override { real->remove_file(path); }
  void remove_folder(const std::string& path) override { real->remove_folder(path); }

  std::shared_ptr<FileSystem> real = FileSystem::real();
  std::function<void()> fail;
};

TEST(ErrorMessages, TheCodeOfTheCauseComesOutOfASaveAndABrokenDiskIs11) {
  const std::vector<std::pair<ExitCode, std::function<void()>>> failures = {
      {ExitCode::data, [] { throw Error("made up", ExitCode::data); }},
      {ExitCode::out_of_memory, [] { throw std::bad_alloc(); }},
      {ExitCode::snapshot, [] { throw std::runtime_error("the disk is broken"); }},
  };
  for (const bool asynchronous : {false, true}) {
    for (const auto& [code, fail] : failures) {
      const SharedFolder folder;
      const auto files = std::make_shared<FailingFiles>();
      const snapshot::FileSystemScope scope(files);
      Recipe recipe;
      recipe.options.snapshots(
          SnapshotOptions().folder(folder.file("run")).asynchronous(asynchronous));
      TrainingRun run(runtime(), recipe);
      run.train_to(1);
      files->fail = runtime().rank() == 0 ? fail : nullptr;
      const Error error = shared_error_of([&] { run.trainer.save_and_leave(); });
      EXPECT_EQ(error.code(), code) << asynchronous;
      EXPECT_THAT(error.what(), HasSubstr(": rank 0: "));
      files->fail = nullptr;
      EXPECT_EQ(shared_error_of([&] { run.trainer.save_and_leave(); }).code(), ExitCode::preempted);
    }
  }
}

TEST(ErrorMessages, AnFp64ModelIsAnsweredWithTheParametersName) {
  const auto model = std::make_shared<Mlp>();
  model->second->to(at::kDouble);
  const auto options = TrainerOptions().precision(Precision::O1(at::kBFloat16));
  EXPECT_THAT(
      error_of([&] { Trainer(runtime(), model, SGD(0.1), options); }),
      AllOf(HasSubstr("parameter second.weight is fp64"), HasSubstr("model->to(torch::kFloat)")));
  model->to(at::kFloat);  // the advice
  EXPECT_NO_THROW(Trainer(runtime(), model, SGD(0.1), options));
}

TEST(ErrorMessages, AutocastForEvaluationIsTheStepsOwn) {
  const at::Tensor input = testing::drawn({5, 4}, 3);
  for (const Precision& precision :
       {Precision::O0(), Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16)}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, SGD(0.0), TrainerOptions().precision(precision));
    at::Tensor inside;
    trainer.step([&] {
      inside = model->forward(input).detach();
      return Loss(inside.sum() * 0.0 + model->forward(input).sum());
    });
    {
      const auto region = trainer.autocast();
      const at::NoGradGuard no_grad;
      const at::Tensor output = model->forward(input);
      EXPECT_EQ(output.scalar_type(), inside.scalar_type());
      EXPECT_TRUE(at::equal(output, inside));
    }
    EXPECT_FALSE(at::autocast::is_autocast_enabled(device().type()));
  }
}

}  // namespace
}  // namespace lockstep
