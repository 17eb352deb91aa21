// State of the loop that snapshots hold: carried hidden states, counters.
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <torch/nn/modules/rnn.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <tuple>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/temporary_folder.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct LanguageModel : torch::nn::Module {
  LanguageModel()
      : lstm(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 5).num_layers(2)))),
        last(register_module("last", torch::nn::Linear(5, 3))) {
    to(testing::device());
  }
  torch::nn::LSTM lstm;
  torch::nn::Linear last;
};

using Hidden = std::tuple<at::Tensor, at::Tensor>;

/// The next stretch of this rank's text, for 2 rows.
at::Tensor stretch(int64_t number) {
  return testing::drawn({4, 2, 3}, static_cast<uint64_t>(number * 64 + runtime().rank()));
}

/// A loop that carries its hidden state over updates, as word-level language models do.
struct Carrying {
  explicit Carrying(const std::string& folder, bool names_after_resume = false)
      : model((at::manual_seed(5), std::make_shared<LanguageModel>())),
        trainer(runtime(), model, AdamW(1e-2)) {
    if (!names_after_resume) {
      name_state();
    }
    report = trainer.resume(folder);
    if (names_after_resume) {
      name_state();
    }
  }
  void name_state() {
    trainer.state("hidden", std::get<0>(hidden));
    trainer.state("cell", std::get<1>(hidden));
    trainer.state("stretches", stretches);
    trainer.state("best", best);
  }
  void train_to(int64_t last) {
    while (stretches < last) {
      const at::Tensor text = stretch(stretches);
      const StepReport step = trainer.step([&] {
        const bool begins = !std::get<0>(hidden).defined();
        auto [y, state] = begins ? model->lstm->forward(text) : model->lstm->forward(text, hidden);
        hidden = {std::get<0>(state).detach(), std::get<1>(state).detach()};
        return (model->last->forward(y).to(at::kFloat) - text).square().mean();
      });
      losses.push_back(step.loss());
      best = std::min(best, step.loss());
      ++stretches;
    }
  }
  std::shared_ptr<LanguageModel> model;
  Trainer trainer;
  Hidden hidden;
  int64_t stretches = 0;
  double best = 1e9;
  ResumeReport report;
  std::vector<double> losses;
};

TEST(SavedVariables, ACarriedHiddenStateGoesOnBitForBit) {
  for (const bool names_after_resume : {false, true}) {
    const SharedFolder folder;
    Carrying unbroken(folder.file("unbroken"));
    unbroken.train_to(8);
    std::vector<double> losses;
    {
      Carrying before(folder.file("run"), names_after_resume);
      before.train_to(4);
      before.trainer.save();
      losses = before.losses;
    }
    Carrying after(folder.file("run"), names_after_resume);
    EXPECT_TRUE(after.report.resumed);
    EXPECT_THAT(after.report.notes, IsEmpty());
    EXPECT_EQ(after.stretches, 4);
    after.train_to(8);
    losses.insert(losses.end(), after.losses.begin(), after.losses.end());
    EXPECT_EQ(losses, unbroken.losses);
    EXPECT_EQ(after.best, unbroken.best);
    EXPECT_TRUE(at::equal(std::get<1>(after.hidden), std::get<1>(unbroken.hidden)));
    EXPECT_TRUE(
        at::equal(testing::flat_masters(after.trainer), testing::flat_masters(unbroken.trainer)));
  }
}

/// A Trainer that saved what `name` names, at update 1.
template <typename Name>
void save_with(const std::string& folder, Runtime& runtime, const Name& name) {
  const auto model = std::make_shared<testing::Mlp>();
  Trainer trainer(runtime, model, SGD(0.1));
  name(trainer);
  trainer.resume(folder);
  trainer.step([&] { return model->loss(testing::ones({1, 4}), testing::ones({1, 2})); });
  trainer.save();
}

template <typename Name>
ResumeReport resume_with(const std::string& folder, Runtime& runtime, const Name& name) {
  const auto model = std::make_shared<testing::Mlp>();
  Trainer trainer(runtime, model, SGD(0.1));
  name(trainer);
  return trainer.resume(folder);
}

TEST(SavedVariables, VariablesOfEveryFormComeBack) {
  const SharedFolder folder;
  at::Tensor strided = testing::drawn({3, 4}, 1).t() + runtime().rank();
  at::Tensor expanded = testing::ones({1, 2}).expand({3, 2});
  at::Tensor whole = at::arange(3, at::kLong), half = testing::ones({2}, at::kHalf), none;
  int64_t number = 41 + runtime().rank();
  save_with(folder.file("run"), runtime(), [&](Trainer& trainer) {
    trainer.state("replaced", none);
    trainer.state("replaced", strided);
    trainer.state("expanded", expanded);
    trainer.state("whole", whole);
    trainer.state("half", half);
    trainer.state("none", none);
    trainer.state("number", number);
  });
  at::Tensor of_other_sizes = testing::ones({7}), made, of_host = at::empty({0}), as_half,
             gone = half;
  int64_t found = 0;
  const ResumeReport report = resume_with(folder.file("run"), runtime(), [&](Trainer& trainer) {
    trainer.state("replaced", of_other_sizes);
    trainer.state("expanded", made);
    trainer.state("whole", of_host);
    trainer.state("half", as_half);
    trainer.state("none", gone);
    trainer.state("number", found);
  });
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_TRUE(at::equal(of_other_sizes, strided));
  EXPECT_TRUE(at::equal(made, expanded));
  EXPECT_EQ(made.device(), testing::device());
  EXPECT_TRUE(at::equal(of_host, whole));
  EXPECT_TRUE(of_host.is_cpu());
  EXPECT_EQ(as_half.scalar_type(), at::kHalf);
  EXPECT_FALSE(gone.defined());
  EXPECT_EQ(found, number);
}

TEST(SavedVariables, StringsComeBackByteByByte) {
  const SharedFolder folder;
  std::mt19937 generator(7);
  std::ostringstream drawn;
  drawn << generator;
  std::string generator_state = drawn.str(), bytes("a\0\xff\n", 4), empty;
  save_with(folder.file("run"), runtime(), [&](Trainer& trainer) {
    trainer.state("generator", generator_state);
    trainer.state("bytes", bytes);
    trainer.state("empty", empty);
  });
  std::string found_generator, found_bytes = "longer than before", found_empty = "not empty";
  resume_with(folder.file("run"), runtime(), [&](Trainer& trainer) {
    trainer.state("generator", found_generator);
    trainer.state("bytes", found_bytes);
    trainer.state("empty", found_empty);
  });
  EXPECT_EQ(found_generator, drawn.str());
  EXPECT_EQ(found_bytes, bytes);
  EXPECT_EQ(found_empty, "");
  double number = 0.0;
  EXPECT_THAT(error_of([&] {
                resume_with(folder.file("run"), runtime(),
                            [&](Trainer& trainer) { trainer.state("bytes", number); });
              }),
              AllOf(HasSubstr("state(\"bytes\") is a double now"), HasSubstr("Byte [4]")));
}

TEST(SavedVariables, WhatCannotComeBackIsSaid) {
  const SharedFolder folder;
  double real = 0.5;
  int64_t number = 2;
  save_with(folder.file("run"), runtime(), [&](Trainer& trainer) { trainer.state("x", real); });
  const ResumeReport report = resume_with(folder.file("run"), runtime(), [&](Trainer& trainer) {
    trainer.state("x", real);
    trainer.state("later", number);
  });
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("state(\"later\") stays as it is")));
  EXPECT_EQ(number, 2);
  const auto wrong_kind = [&](Trainer& trainer) { trainer.state("x", number); };
  EXPECT_THAT(error_of([&] { resume_with(folder.file("run"), runtime(), wrong_kind); }),
              AllOf(HasSubstr("state(\"x\") is an int64_t now"), HasSubstr("Double")));
  const auto model = std::make_shared<testing::Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  trainer.resume(folder.file("run"));
  EXPECT_THAT(error_of([&] { trainer.state("x", number); }), HasSubstr("is an int64_t now"));
  EXPECT_THAT(error_of([&] { trainer.state("", number); }), HasSubstr("is no name"));
}

TEST(SavedVariables, OnAnotherNumberOfRanksWhatAllHadAlikeComesBack) {
  const SharedFolder folder;
  double alike = 0.25;
  at::Tensor each = testing::full({2}, runtime().rank()), same = testing::full({2}, 7);
  save_with(folder.file("run"), runtime(), [&](Trainer& trainer) {
    trainer.state("alike", alike);
    trainer.state("each", each);
    trainer.state("same", same);
  });
  if (!runtime().is_main()) {
    return;
  }
  Runtime solo = testing::solo_runtime();
  double number = 0.0;
  at::Tensor own = testing::full({1}, 5), all;
  const ResumeReport report = resume_with(folder.file("run"), solo, [&](Trainer& trainer) {
    trainer.state("alike", number);
    trainer.state("each", own);
    trainer.state("same", all);
  });
  EXPECT_EQ(number, alike);
  EXPECT_TRUE(at::equal(all, same));
  if (runtime().size() == 1) {
    EXPECT_TRUE(at::equal(own, each));
    return;
  }
  EXPECT_TRUE(at::equal(own, testing::full({1}, 5)));
  EXPECT_THAT(report.notes, Contains(AllOf(HasSubstr("state(\"each\") stays as it is"),
                                           HasSubstr(c10::str(runtime().size(), " ranks")))));
}

TEST(SavedVariables, AreLookedForOnRanksThatHaveFilesAlone) {
  if (!runtime().is_main()) {
    return;
  }
  Runtime solo = testing::solo_runtime();
  const testing::TemporaryFolder folder;
  double value = 0.25, found = 1.0;
  save_with(folder.path(), solo, [&](Trainer& trainer) { trainer.state("value", value); });
  const std::string path = folder.file(snapshot::step_folder(1)) + "/" + snapshot::kManifestName;
  auto manifest = snapshot::Manifest::parse(snapshot::MappedFile(path).text(), path);
  manifest.world_size = 1 << 30;
  std::ofstream(path, std::ios::trunc) << manifest.render();
  const ResumeReport report =
      resume_with(folder.path(), solo, [&](Trainer& trainer) { trainer.state("value", found); });
  EXPECT_THAT(report.notes, Contains(HasSubstr("state(\"value\") stays as it is")));
  EXPECT_EQ(found, 1.0);
}

}  // namespace
}  // namespace lockstep
