// Buckets that share a ring of wires (Wires), as they do with shard_optimizer: bits and bytes.
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <torch/nn/modules/linear.h>

#include "shared_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::Outcome;

/// Layers enough for a ring. `body` may be frozen.
struct Deep : torch::nn::Module {
  Deep() : body(register_module("body", torch::nn::Linear(4, 48))) {
    for (int i = 0; i < 10; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(48, 48)));
    }
    layers.push_back(register_module("head", torch::nn::Linear(48, 2)));
    to(testing::device());
  }
  /// Without the layer `left_out`.
  at::Tensor forward(at::Tensor x, size_t left_out = 100) {
    x = body->forward(x);
    for (size_t i = 0; i < layers.size(); ++i) {
      x = i == left_out ? x : layers[i]->forward(at::tanh(x));
    }
    return x;
  }
  void thaw(bool trainable) {
    for (const at::Tensor& parameter : body->parameters()) {
      parameter.set_requires_grad(trainable);
    }
  }
  torch::nn::Linear body;
  std::vector<torch::nn::Linear> layers;
};

enum class Kind { plain, checkpointed, thawed, unused };

/// Five updates; the last rank overflows in the fourth.
Outcome run_of(Kind kind, const TrainerOptions& options) {
  at::manual_seed(17);
  const auto model = std::make_shared<Deep>();
  model->thaw(kind != Kind::thawed);
  Trainer trainer(runtime(), model, AdamW(1e-2), options);
  const int rank = runtime().rank();
  Outcome outcome;
  for (int64_t step = 0; step < 5; ++step) {
    if (kind == Kind::thawed && step == 2) {
      model->thaw(true);
      trainer.adopt_trainable();
    }
    const float factor =
        step == 3 && rank == runtime().size() - 1 ? testing::overflow_factor : 1.0F;
    for (int64_t k = 0; k < options.accumulate(); ++k) {
      const testing::Batch batch = testing::mlp_batch(step * 10 + k, rank);
      const auto report = trainer.step([&] {
        const auto forward = [&](const at::Tensor& x) {
          return model->forward(x, kind == Kind::unused && (step + rank) % 2 == 1 ? 5 : 100);
        };
        const at::Tensor y =
            kind == Kind::checkpointed ? checkpoint(forward, batch.x) : forward(batch.x);
        return Loss((y.to(at::kFloat) - batch.y).square().mean() * factor);
      });
      if (report.closes_update()) {
        EXPECT_EQ(report.skipped(), step == 3);
        outcome.norms.push_back(report.skipped() ? 0.0 : report.grad_norm());
      }
    }
    EXPECT_TRUE(trainer.replicas_agree()) << step;
  }
  outcome.masters = testing::flat_masters(trainer);
  outcome.weights = testing::flat(model->parameters());
  outcome.averages = options.ema() > 0.0 ? testing::flat(trainer.averaged()) : outcome.masters;
  outcome.scale = trainer.loss_scale();
  outcome.updates = trainer.updates();
  outcome.memory = trainer.memory();
  return outcome;
}

void expect_the_bits_of_a_plain_run(Kind kind, const TrainerOptions& given) {
  for (const Precision& level : testing::levels()) {
    for (const int64_t accumulate : {1, 2}) {
      const auto options = TrainerOptions(given)
                               .precision(level)
                               .accumulate(accumulate)
                               .clip_grad_norm(0.5)
                               .ema(0.9)
                               .buckets(testing::small_buckets());
      SCOPED_TRACE(c10::str(level.describe(), " accumulate ", accumulate));
      const Outcome plain = run_of(kind, options);
      const Outcome ring = run_of(kind, TrainerOptions(options).shard_optimizer(true));
      expect_same(ring, plain, "sharded");
      if (testing::device().is_cpu()) {
        expect_same(run_of(kind, testing::shared(options)), plain, "and with shared weights");
      }
      if (runtime().size() > 1) {
        EXPECT_LT(ring.memory.gradients, plain.memory.gradients);
      }
    }
  }
}

TEST(RingOfWires, HasTheBitsOfAPlainRun) {
  expect_the_bits_of_a_plain_run(Kind::plain, {});
}

TEST(RingOfWires, HasTheBitsOfAPlainRunUnderCheckpoint) {
  expect_the_bits_of_a_plain_run(Kind::checkpointed, {});
}

TEST(RingOfWires, HasTheBitsOfAPlainRunWhereLayersAreThawed) {
  expect_the_bits_of_a_plain_run(Kind::thawed, {});
}

TEST(RingOfWires, HasTheBitsOfAPlainRunWhereRanksUseDifferentLayers) {
  expect_the_bits_of_a_plain_run(Kind::unused, TrainerOptions().unused(UnusedParameters::detect));
}

TEST(RingOfWires, ReplacesTheWiresByThreeAndAShard) {
  const auto options = TrainerOptions().buckets(testing::small_buckets());
  const auto bytes = [&](bool shard) {
    return run_of(Kind::plain, TrainerOptions(options).shard_optimizer(shard)).memory.gradients;
  };
  const int64_t ranks = runtime().size();
  const int64_t whole = bytes(false);
  const int64_t largest = 48 * 48 * 4;
  // Of each of 24 parameters a shard, and what makes it a multiple of 64 elements.
  EXPECT_LE(bytes(true), ranks == 1 ? whole : 3 * largest + whole / ranks + 24 * 64 * 4);
}

}  // namespace
}  // namespace lockstep
