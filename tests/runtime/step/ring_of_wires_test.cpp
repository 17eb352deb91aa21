// Buckets that share a ring of wires (Wires), as they do with shard_optimizer: bits and bytes.
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/collectives/with_gradients.h>
#include <lockstep/runtime/step/impl/gradient_statistics.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <thread>

#include "shared_runs.h"
#include "test_device.h"
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
  /// Without the layer `left_out`. `after_first` gets the output of the first layer.
  using Change = std::function<at::Tensor(const at::Tensor&)>;
  at::Tensor forward(at::Tensor x, size_t left_out = 100, const Change& after_first = {}) {
    x = body->forward(x);
    for (size_t i = 0; i < layers.size(); ++i) {
      x = i == left_out ? x : layers[i]->forward(at::tanh(x));
      x = i == 0 && after_first ? after_first(x) : x;
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

enum class Kind {
  plain,
  checkpointed,
  thawed,
  unused,      // ranks leave layers out, in turn
  collective,  // beside that, a collective in backward after most layers
  failed       // the last rank's backward fails there once
};

struct RingOutcome : Outcome {
  std::vector<std::string> non_finite;  // the parameters, of each update
};

bool on_hosts() {
  return testing::device().is_cpu();
}

testing::Batch batch_of(int64_t step, int rank) {
  testing::Batch batch = testing::mlp_batch(step, rank);
  return {batch.x.to(testing::device()), batch.y.to(testing::device())};
}

/// Ends the window with an Error in the last rank's backward, after most of the layers.
void fail(Trainer& trainer, Deep& model, const testing::Batch& batch) {
  const auto plant = [](const at::Tensor& x) {
    if (runtime().rank() == runtime().size() - 1) {
      x.register_hook([](const at::Tensor& gradient) -> at::Tensor { throw Error("planted"); });
    }
    return x;
  };
  try {
    trainer.step([&] { return Loss(model.forward(batch.x, 100, plant).square().mean()); });
    trainer.impl().step->settle();  // on a device the other ranks learn of it here
    ADD_FAILURE() << "the step did not fail";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("planted"), std::string::npos) << error.what();
  }
}

/// Five updates; the last rank overflows in the fourth.
RingOutcome run_of(Kind kind, const TrainerOptions& options) {
  at::manual_seed(17);
  const Communicator ranks = runtime().communicator().split(0);
  const Deep::Change mean = [&](const at::Tensor& x) {
    return x + all_reduce_with_gradients(ranks, x, ReduceOp::avg()) * 0.1;
  };
  // NCCL wants the calls of all communicators in one order on all ranks.
  const bool leaves_out =
      kind == Kind::unused || (kind == Kind::collective && ranks.transport_name() != "nccl");
  const auto model = std::make_shared<Deep>();
  model->thaw(kind != Kind::thawed);
  Trainer trainer(runtime(), model, AdamW(1e-2), options);
  const int rank = runtime().rank();
  RingOutcome outcome;
  for (int64_t step = 0; step < 5; ++step) {
    if (kind == Kind::thawed && step == 2) {
      model->thaw(true);
      trainer.adopt_trainable();
    }
    const float factor =
        step == 3 && rank == runtime().size() - 1 ? testing::overflow_factor : 1.0F;
    for (int64_t k = 0; k < options.accumulate(); ++k) {
      const testing::Batch batch = batch_of(step * 10 + k, rank);
      if (kind == Kind::failed && options.shard_optimizer() && step % 2 == 0 && k == 0) {
        for (int64_t open = 1; open < options.accumulate(); ++open) {
          trainer.step([&] { return Loss(model->forward(batch.x).square().mean()); });
        }
        fail(trainer, *model, batch);
      }
      const auto report = trainer.step([&] {
        const auto forward = [&](const at::Tensor& x) {
          return model->forward(x, leaves_out && (step + rank) % 2 == 1 ? 5 : 100,
                                kind == Kind::collective ? mean : Deep::Change());
        };
        const at::Tensor y =
            kind == Kind::checkpointed ? checkpoint(forward, batch.x) : forward(batch.x);
        return Loss((y.to(at::kFloat) - batch.y).square().mean() * factor);
      });
      if (report.closes_update()) {
        EXPECT_EQ(report.skipped(), step == 3);
        outcome.norms.push_back(report.skipped() ? 0.0 : report.grad_norm());
        outcome.non_finite.push_back(
            non_finite_names(trainer.impl().storage.reducer(), runtime().control()));
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

void expect_equal(const RingOutcome& a, const RingOutcome& b, const std::string& what) {
  expect_same(a, b, what);
  EXPECT_EQ(a.non_finite, b.non_finite) << what;
}

void expect_the_bits_of_a_plain_run(
    Kind kind, const TrainerOptions& given,
    const std::vector<Precision>& levels = testing::kinds_of_masters()) {
  for (const Precision& level : levels) {
    for (const int64_t accumulate : {1, 2}) {
      const auto options = TrainerOptions(given)
                               .precision(level)
                               .accumulate(accumulate)
                               .clip_grad_norm(0.5)
                               .ema(0.9)
                               .buckets(testing::small_buckets());
      SCOPED_TRACE(c10::str(level.describe(), " accumulate ", accumulate));
      const RingOutcome plain = run_of(kind, options);
      const RingOutcome ring = run_of(kind, TrainerOptions(options).shard_optimizer(true));
      EXPECT_FALSE(plain.non_finite[3].empty());
      expect_equal(ring, plain, "sharded");
      if (on_hosts()) {
        expect_equal(run_of(kind, testing::shared(options)), plain, "and with shared weights");
      }
      if (runtime().size() > 1) {
        EXPECT_LT(ring.memory.gradients, plain.memory.gradients);
      }
    }
  }
}

TEST(RingOfWires, HasTheBitsOfAPlainRun) {
  expect_the_bits_of_a_plain_run(Kind::plain, {}, testing::levels());
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

TEST(RingOfWires, HasTheBitsOfAPlainRunWhereTheyMeetInACollectiveOfBackward) {
  // On a device a hook first waits in vain.
  const auto levels = on_hosts() ? testing::kinds_of_masters()
                                 : std::vector<Precision>{testing::at_scale(Precision::O0())};
  expect_the_bits_of_a_plain_run(Kind::collective,
                                 TrainerOptions().unused(UnusedParameters::detect), levels);
}

TEST(RingOfWires, HasTheBitsOfAPlainRunAfterABackwardThatFails) {
  expect_the_bits_of_a_plain_run(Kind::failed, {});
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

TEST(RingOfWires, KeepsFewGradientsOfADeviceWhoseHostIsAhead) {
  if (on_hosts()) {
    GTEST_SKIP() << "a host is never ahead of itself, and does not wait";
  }
  const auto model = std::make_shared<Deep>();
  Trainer trainer(
      runtime(), model, AdamW(1e-2),
      TrainerOptions().buckets(testing::small_buckets()).shard_optimizer(true).accumulate(1));
  const auto step = [&](int64_t number) {
    const testing::Batch batch = batch_of(number, runtime().rank());
    trainer.step([&] {
      const at::Tensor y = model->forward(batch.x);
      if (number > 0 && runtime().rank() == runtime().size() - 1) {
        y.register_hook([](const at::Tensor& gradient) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others are ahead
          return gradient;
        });
      }
      return Loss((y - batch.y).square().mean());
    });
  };
  step(0);
  const MemoryMeter meter(testing::device().type());
  step(1);
  const int64_t layer = 48 * 48 * 4;
  EXPECT_LT(meter.peak(), 5 * layer) << "of " << 10 * layer << " bytes of gradients";
}

}  // namespace
}  // namespace lockstep
