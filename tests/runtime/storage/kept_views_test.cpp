// Tensors that share the memory of a model's parameters and buffers and are not registered: they
// follow where the memory is replaced, or are refused by name (pytorch#102337).
#include <ATen/ATen.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/evaluation_scopes.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// An Mlp with a frozen table and a buffer.
struct Viewed : Mlp {
  Viewed() {
    table = register_parameter("table", drawn({4, 6}, 5).to(device()), /*requires_grad=*/false);
    average = register_buffer("average", drawn({4}, 6).to(device()));
    to(device());
  }
  at::Tensor table;
  at::Tensor average;
};

/// Keeps pieces of its weight.
struct OfPieces : torch::nn::Module {
  OfPieces() {
    w = register_parameter("w", drawn({4, 4}, 1).to(device()));
    pieces = w.chunk(2);
  }
  at::Tensor loss() const { return (pieces[0] * pieces[1]).square().mean(); }
  at::Tensor w;
  std::vector<at::Tensor> pieces;
};

struct Alias {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> of;
};

std::vector<Alias> aliases() {
  return {{"a row", [](const at::Tensor& t) { return t[0]; }},
          {"transposed", [](const at::Tensor& t) { return t.t(); }},
          {"flat", [](const at::Tensor& t) { return t.view(-1); }},
          {"detached", [](const at::Tensor& t) { return t.detach(); }},
          {"data", [](const at::Tensor& t) { return t.data(); }},
          {"a part of a view", [](const at::Tensor& t) { return t.view(-1).slice(0, 1, 3); }},
          {"elements as integers", [](const at::Tensor& t) { return t.detach().view(at::kInt); }}};
}

/// What an alias taken now holds.
bool is_alias(const Alias& alias, const at::Tensor& kept, const at::Tensor& tensor) {
  const at::Tensor now = alias.of(tensor);
  return kept.const_data_ptr() == now.const_data_ptr() && at::equal(kept, now);
}

void step(Trainer& trainer, Mlp& model, int64_t number = 1) {
  trainer.step([&] { return scaled_loss(model, number); });
}

std::vector<TrainerOptions> levels_that_keep_fp32() {
  return {TrainerOptions(),
          TrainerOptions().precision(Precision::O1(at::kBFloat16)),
          TrainerOptions().precision(
              Precision::O2(at::kBFloat16).keep_fp32("first").keep_fp32("table")),
          TrainerOptions().shard_optimizer(true),
          TrainerOptions().reproducible(true),
          TrainerOptions().ema(0.5)};
}

std::vector<TrainerOptions> levels_of_16_bits() {
  return {TrainerOptions().precision(Precision::O2(at::kBFloat16)),
          TrainerOptions().precision(testing::half_precision()),
          TrainerOptions().precision(Precision::O2(at::kBFloat16).remainders()),
          TrainerOptions().precision(Precision::O3(at::kBFloat16))};
}

TEST(KeptViews, OfATrainedWeightFollowIntoTheTrainersMemory) {
  for (const TrainerOptions& options : levels_that_keep_fp32()) {
    for (const Alias& alias : aliases()) {
      SCOPED_TRACE(options.describe() + ", " + alias.name);
      const auto model = std::make_shared<Viewed>();
      const at::Tensor kept = alias.of(model->first->weight);
      Trainer trainer(runtime(), model, SGD(0.1), options);
      const at::Tensor before = kept.clone();
      step(trainer, *model);
      EXPECT_TRUE(is_alias(alias, kept, model->first->weight));
      EXPECT_FALSE(at::equal(kept, before));
    }
  }
}

TEST(KeptViews, OfAWeightOfAnotherDtypeAreRefusedByName) {
  for (const TrainerOptions& options : levels_of_16_bits()) {
    for (const Alias& alias : aliases()) {
      SCOPED_TRACE(options.describe() + ", " + alias.name);
      const auto model = std::make_shared<Viewed>();
      {
        const at::Tensor kept = alias.of(model->first->weight);
        EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), options); }),
                    AllOf(HasSubstr("parameter first.weight shares its memory with a tensor that "
                                    "the model has not registered"),
                          HasSubstr("keep_fp32(\"first.weight\")")));
        EXPECT_TRUE(is_alias(alias, kept, model->first->weight));  // nothing has moved
      }
      const at::Tensor kept = alias.of(model->table);
      EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), options); }),
                  HasSubstr("parameter table shares its memory with"));
    }
    const auto model = std::make_shared<Viewed>();
    const Trainer trainer(runtime(), model, SGD(0.1), options);  // nobody has a view
    EXPECT_NE(model->first->weight.scalar_type(), at::kFloat);
  }
}

TEST(KeptViews, AreRefusedOnEveryRankWhereOneRankHasOne) {
  const auto model = std::make_shared<Viewed>();
  const at::Tensor kept = runtime().is_main() ? model->first->weight.detach() : at::Tensor();
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), levels_of_16_bits().front()); }),
              HasSubstr("parameter first.weight shares its memory"));
}

TEST(KeptViews, ThatAreRegisteredAreNamed) {
  const auto model = std::make_shared<Viewed>();
  model->register_buffer("same", model->first->weight.detach());
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), levels_of_16_bits().front()); }),
              HasSubstr("parameter first.weight shares its memory with buffer same"));
  Trainer trainer(runtime(), model, SGD(0.1));
  step(trainer, *model);
  EXPECT_TRUE(at::equal(model->named_buffers()["same"], model->first->weight));
}

TEST(KeptViews, OfWhichNothingIsLeftButTheParameterAreNone) {
  const auto model = std::make_shared<Viewed>();
  model->register_parameter("made_as_a_view", drawn({12}, 7).to(device()).view({3, 4}),
                            /*requires_grad=*/false);
  model->register_parameter("a_row", drawn({2, 4}, 7).to(device())[1], /*requires_grad=*/false);
  const Trainer trainer(runtime(), model, SGD(0.1), levels_of_16_bits().front());
  EXPECT_EQ(model->named_parameters()["a_row"].scalar_type(), at::kBFloat16);
}

std::vector<std::pair<const char*, at::Tensor>> made_as_views() {
  const auto pairs = [] { return at::polar(at::ones({3, 4}), at::arange(12).view({3, 4}) * 0.1); };
  return {{"conjugated", at::conj(pairs())},
          {"the imaginary part of a conjugate", at::imag(at::conj(pairs()))},
          {"adjoint", at::adjoint(pairs())},
          {"real pairs", at::view_as_real(pairs())},
          {"transposed", drawn({3, 4}, 1).t()},
          {"negative", at::_neg_view(drawn({3, 4}, 1))},
          {"a view of a view", drawn({3, 4}, 1).view(-1).view({4, 3})[1]}};
}

TEST(KeptViews, AreNoneWhereAParameterOrBufferWasMadeAsAView) {
  std::vector<TrainerOptions> settings = levels_that_keep_fp32();
  const auto sixteen_bits = levels_of_16_bits();
  settings.insert(settings.end(), sixteen_bits.begin(), sixteen_bits.end());
  for (const TrainerOptions& options : settings) {
    for (size_t i = 0; i < made_as_views().size(); ++i) {
      for (const int place : {0, 1, 2}) {  // trained, frozen, buffer
        const auto model = std::make_shared<Viewed>();
        auto [name, tensor] = made_as_views()[i];
        SCOPED_TRACE(c10::str(options.describe(), ", ", name, ", ", place));
        if (place == 2) {
          model->register_buffer("made", tensor);
        } else {
          model->register_parameter("made", tensor, /*requires_grad=*/place == 0);
        }
        tensor = at::Tensor();
        Trainer trainer(runtime(), model, SGD(0.1), options);
        for (int64_t s = 0; s < 3; ++s) {
          trainer.step([&]() -> Loss {
            const at::Tensor loss = scaled_loss(*model, s).tensor();
            return place == 0
                       ? loss + at::abs(model->named_parameters()["made"]).to(at::kFloat).mean()
                       : loss;
          });
        }
        EXPECT_TRUE(trainer.replicas_agree());
      }
    }
  }
}

TEST(KeptViews, AreNoneOfPiecesOfOneDrawOfWhichSomeAreFrozen) {
  for (const TrainerOptions& options : levels_of_16_bits()) {
    const auto model = std::make_shared<Viewed>();
    {
      const auto pieces = drawn({6, 4}, 2).to(device()).chunk(3);
      model->register_parameter("trained_piece", pieces[0]);
      model->register_parameter("frozen_piece", pieces[1], /*requires_grad=*/false);
      model->register_buffer("counted_piece", pieces[2]);
    }
    Trainer trainer(runtime(), model, SGD(0.1), options);
    for (int64_t s = 0; s < 4; ++s) {
      trainer.step([&]() -> Loss {
        {
          const at::NoGradGuard no_grad;
          model->named_buffers()["counted_piece"].add_(1);
        }
        return scaled_loss(*model, s).tensor() +
               model->named_parameters()["trained_piece"].to(at::kFloat).mean();
      });
    }
    EXPECT_EQ(trainer.updates(), 4);
  }
}

/// LibTorch forbids such views once their base was written, after AdamW as after a Trainer.
TEST(KeptViews, ThatLibTorchForbidsAfterAnUpdateNameTheirWeights) {
  const auto model = std::make_shared<OfPieces>();
  Trainer trainer(runtime(), model, SGD(0.1));
  EXPECT_THAT(error_of([&] { trainer.step([&] { return model->loss(); }); }),
              HasSubstr("the program keeps are views of w. A view that split(), chunk()"));
}

TEST(KeptViews, OfALargerTensorAreRefusedWhereSomethingElseHoldsIt) {
  const at::Tensor whole = drawn({5, 8}, 3).to(device());
  const auto model = std::make_shared<Mlp>();
  model->to(device());
  model->first->weight.set_data(
      whole.view(-1).slice(0, 0, model->first->weight.numel()).view(model->first->weight.sizes()));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1)); }),
              AllOf(HasSubstr("parameter first.weight"), HasSubstr("part of a larger tensor")));
}

TEST(KeptViews, OfFrozenWeightsAndBuffersStayAliasesThroughATrainersLife) {
  for (const TrainerOptions& options : levels_that_keep_fp32()) {
    for (const Alias& alias : aliases()) {
      SCOPED_TRACE(options.describe() + ", " + alias.name);
      const auto model = std::make_shared<Viewed>();
      const at::Tensor of_table = alias.of(model->table);
      const at::Tensor of_average = model->average.slice(0, 1, 3);
      Trainer trainer(runtime(), model, SGD(0.1), options);
      step(trainer, *model);
      EXPECT_TRUE(is_alias(alias, of_table, model->table));
      const at::NoGradGuard no_grad;
      model->average.fill_(3);
      EXPECT_TRUE(at::equal(of_average, at::full_like(of_average, 3)));
    }
  }
}

TEST(KeptViews, FollowWhenWeightsAreFrozenAndThawed) {
  std::vector<TrainerOptions> settings = levels_that_keep_fp32();
  const auto fp32_levels = static_cast<std::ptrdiff_t>(settings.size());
  const auto sixteen_bits = levels_of_16_bits();
  settings.insert(settings.end(), sixteen_bits.begin(), sixteen_bits.end());
  for (const TrainerOptions& options : settings) {
    const bool fp32 = &options - settings.data() < fp32_levels;
    for (const Alias& alias : aliases()) {
      if (!fp32 && std::string(alias.name) == "elements as integers") {
        continue;  // of 32 bits
      }
      SCOPED_TRACE(options.describe() + ", " + alias.name);
      const auto model = std::make_shared<Viewed>();
      Trainer trainer(runtime(), model, SGD(0.1), options);
      const at::Tensor of_first = alias.of(model->first->weight);
      const at::Tensor of_table = alias.of(model->table);
      for (const bool frozen : {true, false}) {
        model->first->weight.set_requires_grad(!frozen);
        model->table.set_requires_grad(frozen);
        trainer.adopt_trainable();
        trainer.step([&] {
          const at::Tensor loss = scaled_loss(*model, 1).tensor();
          return frozen ? loss * model->table.to(at::kFloat).sum() : loss;
        });
        EXPECT_TRUE(is_alias(alias, of_first, model->first->weight));
        EXPECT_TRUE(is_alias(alias, of_table, model->table));
      }
    }
  }
}

TEST(KeptViews, FollowThroughLoadingAndResuming) {
  const testing::SharedFolder folder;
  const auto model = std::make_shared<Viewed>();
  const at::Tensor kept = model->first->weight.view(-1);
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().ema(0.5).snapshots(
                      SnapshotOptions().folder(folder.file("runs")).asynchronous(false)));
  const auto follows = [&] { return at::equal(kept, model->first->weight.view(-1)); };
  step(trainer, *model);
  trainer.save();
  trainer.finish_saving();
  step(trainer, *model);
  const std::string path = trainer.resume().path;
  EXPECT_TRUE(follows());
  trainer.load_weights(path);
  EXPECT_TRUE(follows());
  {
    const AveragedWeights averaged(trainer, model);
    EXPECT_TRUE(follows());
  }
  EXPECT_TRUE(follows());
}

/// Views of the weights that a program gave to the model, and of those that it had before.
TEST(KeptViews, FollowWhenGivenWeightsAreAdopted) {
  const auto model = std::make_shared<Viewed>();
  const at::Tensor older = model->first->weight.view(-1);
  Trainer trainer(runtime(), model, SGD(0.1));
  const at::Tensor given = drawn({8, 4}, 9).to(device());
  model->first->weight.set_data(given);
  trainer.adopt_weights();
  step(trainer, *model);
  EXPECT_TRUE(at::equal(given, model->first->weight));
  EXPECT_TRUE(at::equal(older, model->first->weight.view(-1)));
  model->first->weight.set_requires_grad(false);
  trainer.adopt_trainable();
  model->first->weight.set_requires_grad(true);
  trainer.adopt_trainable();
  step(trainer, *model);
  EXPECT_TRUE(at::equal(given, model->first->weight));
  EXPECT_TRUE(at::equal(older, model->first->weight.view(-1)));
}

TEST(KeptViews, OfGivenWeightsOfAnotherDtypeAreRefused) {
  const auto model = std::make_shared<Viewed>();
  Trainer trainer(runtime(), model, SGD(0.1), levels_of_16_bits().front());
  model->to(at::kFloat);
  {
    const at::Tensor kept = model->first->weight.detach();
    EXPECT_THAT(error_of([&] { trainer.adopt_weights(); }),
                HasSubstr("parameter first.weight shares its memory"));
  }
  trainer.adopt_weights();
  step(trainer, *model);
}

TEST(KeptViews, OfALazySignAreRefused) {
  const auto model = std::make_shared<Viewed>();
  const at::Tensor base = drawn({4}, 8).to(device());
  model->register_buffer("minus", at::_neg_view(base));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1)); }), HasSubstr("buffer minus"));
}

/// Its forward moves the buffer through a view that it keeps.
struct Counts : torch::nn::Module {
  Counts() {
    layer = register_module("layer", torch::nn::Linear(4, 4));
    counts = register_buffer("counts", at::zeros({2, 3}));
    to(device());
    row = counts[1];
  }
  at::Tensor forward(const at::Tensor& x) {
    row.add_(1);
    return layer(x) * row.sum().detach().clone();
  }
  torch::nn::Linear layer{nullptr};
  at::Tensor counts, row;
};

TEST(KeptViews, OfABufferAreNotWrittenTwiceByARecompute) {
  const auto model = std::make_shared<Counts>();
  Trainer trainer(runtime(), model, SGD(0.1));
  for (int64_t s = 0; s < 3; ++s) {
    trainer.step([&] {
      return checkpoint(CheckpointOptions(), model, drawn({2, 4}, 1).to(device())).square().mean();
    });
  }
  EXPECT_TRUE(at::equal(model->counts[1], at::full({3}, 3.0, device())));
  EXPECT_EQ(model->row.const_data_ptr(), model->counts[1].const_data_ptr());
}

TEST(KeptViews, OutliveTheirTrainerAndFollowTheNext) {
  const auto model = std::make_shared<Viewed>();
  const at::Tensor kept = model->first->weight.view(-1);
  for (int times = 0; times < 3; ++times) {
    Trainer trainer(runtime(), model, SGD(0.1));
    step(trainer, *model);
    EXPECT_TRUE(at::equal(kept, model->first->weight.view(-1)));
  }
  EXPECT_TRUE(at::equal(kept, model->first->weight.view(-1)));
}

/// The model computes with views that it took when it was made; plain LibTorch trains it.
struct OfViews : torch::nn::Module {
  OfViews() {
    w = register_parameter("w", drawn({2, 8, 8}, 1).to(device()) * 0.3);
    q = w[0];
    k = w.view({16, 8}).slice(0, 8, 16);
  }
  at::Tensor loss(int64_t s) const {
    const at::Tensor x = drawn({16, 8}, static_cast<uint64_t>(s)).to(device());
    return (at::tanh(x.matmul(q)).matmul(k) - x).square().mean();
  }
  at::Tensor w, q, k;
};

TEST(KeptViews, TrainAsInPlainLibTorch) {
  const auto model = std::make_shared<OfViews>();
  const auto plain = std::make_shared<OfViews>();
  Trainer trainer(runtime(), model, SGD(0.05));
  torch::optim::SGD optimizer(plain->parameters(), 0.05);
  for (int64_t s = 0; s < 20; ++s) {
    trainer.step([&] { return model->loss(s); });
    optimizer.zero_grad();
    plain->loss(s).backward();
    optimizer.step();
  }
  EXPECT_TRUE(at::allclose(model->w, plain->w, 1e-5, 1e-6));
  EXPECT_FALSE(at::allclose(model->w, OfViews().w, 1e-2, 1e-2));
}

}  // namespace
}  // namespace lockstep
