// Ranks whose replicas differ: flipped bits, and optimizers that were given other options.
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"

namespace lockstep {

using namespace detail;

namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::flat_masters;
using testing::half_precision;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::OneWeight;
using testing::runtime;
using testing::scaled_loss;
using testing::SharedFolder;

/// Flips a low bit of an element on rank 1.
void flip(const at::Tensor& tensor, int64_t element) {
  if (runtime().rank() == 1) {
    auto* bytes = static_cast<unsigned char*>(tensor.mutable_data_ptr());
    bytes[static_cast<size_t>(element) * tensor.element_size()] ^= 0x10U;
  }
}

/// The Error with exit code diverged that `body` throws on every rank.
template <typename Body>
std::string divergence(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::diverged) << error.what();
    Communicator control = runtime().control();
    for (const std::string& others : control.all_gather_bytes(error.what())) {
      EXPECT_EQ(others, error.what());
    }
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

std::string rank_1_differs() {
  return runtime().size() == 2
             ? "ranks 0 and 1 hold different bits"
             : c10::str("rank 1 holds other bits than the ", runtime().size() - 1, " others");
}

using Arrays = std::map<std::string, at::Tensor>;

/// The arrays of an updater's state.
Arrays arrays_of(Trainer& trainer) {
  Arrays arrays;
  StateArchive archive(StateArchive::Pass::save,
                       [&](const StateEntry& entry) { arrays[entry.name] = entry.place; });
  trainer.impl().storage.updater().visit_state(trainer.impl().storage.reducer(), archive);
  return arrays;
}

TEST(ReplicaCheck, ABitFlippedInAMasterIsNamedAtTheNextUpdate) {
  for (const Precision& precision : {Precision::O0(), half_precision()}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().precision(precision));
    const auto step = [&] { trainer.step([&] { return scaled_loss(*model, 0); }); };
    step();
    const auto masters = trainer.masters();
    flip(masters[2].second, 5);
    const at::Tensor before = flat_masters(trainer);
    EXPECT_THAT(divergence(step),
                AllOf(HasSubstr("replicas have diverged: " + rank_1_differs()),
                      HasSubstr("first in second.weight"), HasSubstr("trainer.resume(folder)")));
    EXPECT_TRUE(at::equal(flat_masters(trainer), before));
    EXPECT_EQ(trainer.updates(), 1);
    EXPECT_FALSE(trainer.replicas_agree());
  }
}

TEST(ReplicaCheck, ABitFlippedInAMomentOrWeightIsNamed) {
  for (const HostActs acts : {HostActs::at_once, HostActs::one_window_late}) {
    for (const char* where : {"first.weight.exp_avg", "second.bias.exp_avg_sq", "second.bias"}) {
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(std::make_unique<TrainerImpl>(
          runtime(), model, AdamW(1e-2), TrainerOptions().precision(half_precision()), acts));
      const auto step = [&] { trainer.step([&] { return scaled_loss(*model, 0); }); };
      step();
      Arrays arrays = arrays_of(trainer);
      arrays["second.bias"] = model->second->bias.detach();
      flip(arrays.at(where), 1);
      EXPECT_THAT(divergence([&] {
                    step();
                    trainer.impl().step->settle();
                  }),
                  AllOf(HasSubstr(rank_1_differs()),
                        HasSubstr(acts == HostActs::at_once ? c10::str("first in ", where)
                                                            : std::string("first in "))));
    }
  }
}

TEST(ReplicaCheck, AFlippedBitIsFoundWithinSoManyUpdates) {
  constexpr int64_t elements = 16'384;  // 64 KiB: four parts
  for (const int64_t element : {int64_t{0}, int64_t{9'000}, elements - 1}) {
    const auto model = std::make_shared<OneWeight>(testing::ones({elements}));
    Trainer trainer(runtime(), model, SGD(1e-3), TrainerOptions().compare_replicas_every(4));
    const auto step = [&] { trainer.step([&]() -> Loss { return model->weight.sum(); }); };
    step();
    flip(trainer.masters()[0].second, element);
    EXPECT_THAT(divergence([&] {
                  for (int i = 0; i < 4; ++i) {
                    step();
                  }
                }),
                HasSubstr("first in weight"));
    EXPECT_EQ(trainer.updates() % 4, element == 0 ? 0 : element == 9'000 ? 2 : 3);
  }
}

TEST(ReplicaCheck, AFlippedBitReachesNoSnapshotAndResumeCuresIt) {
  for (const auto& spec : {AdamW(1e-2).clone(), TorchOptimizer([](std::vector<at::Tensor> masters) {
                                                  return std::make_unique<torch::optim::AdamW>(
                                                      std::move(masters),
                                                      torch::optim::AdamWOptions(1e-2));
                                                }).clone()}) {
    const SharedFolder folder;
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, *spec,
                    TrainerOptions().precision(half_precision()).compare_replicas_every(0));
    trainer.resume(folder.file("run"));
    const auto step = [&] { trainer.step([&] { return scaled_loss(*model, 0); }); };
    step();
    trainer.save();
    trainer.finish_saving();
    flip(trainer.masters()[1].second, 3);
    for (int i = 0; i < 3; ++i) {
      step();  // not compared
    }
    EXPECT_THAT(divergence([&] { trainer.save(); }),
                AllOf(HasSubstr(rank_1_differs()), HasSubstr("first in first.bias")));
    EXPECT_EQ(trainer.resume(folder.file("run")).update, 1);
    EXPECT_TRUE(trainer.replicas_agree());
    step();
    trainer.save();
    EXPECT_EQ(trainer.finish_saving()->error, std::nullopt);
  }
}

TEST(ReplicaCheck, ABitFlippedInAFrozenLayerReachesNoSnapshot) {
  const SharedFolder folder;
  const auto model = std::make_shared<Mlp>();
  model->first->weight.requires_grad_(false);
  Trainer trainer(runtime(), model, SGD(0.1));
  trainer.resume(folder.file("run"));
  trainer.step([&] { return scaled_loss(*model, 0); });
  flip(model->first->weight.detach(), 0);
  EXPECT_FALSE(trainer.replicas_agree());
  EXPECT_THAT(divergence([&] { trainer.save(); }), HasSubstr("first in first.weight (1 of "));
}

TEST(ReplicaCheck, ShardedWeightsAreCompared) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().shard_optimizer(true));
  const auto step = [&] { trainer.step([&] { return scaled_loss(*model, 0); }); };
  step();
  flip(model->first->bias.detach(), 2);
  EXPECT_THAT(divergence(step),
              AllOf(HasSubstr(rank_1_differs()), HasSubstr("in first.bias (1 of")));
}

TEST(ReplicaCheck, TorchOptimizersThatDifferAreNamed) {
  const auto refusal = [&](const TorchOptimizer::Factory& factory) {
    return error_of([&] { Trainer(runtime(), std::make_shared<Mlp>(), TorchOptimizer(factory)); });
  };
  EXPECT_THAT(refusal([](std::vector<at::Tensor> masters) {
                const double mine = runtime().rank() == 1 ? 0.5 : 0.25;
                return std::make_unique<torch::optim::SGD>(
                    std::move(masters), torch::optim::SGDOptions(0.125).momentum(mine));
              }),
              AllOf(HasSubstr("the optimizer differs between ranks"),
                    HasSubstr("torch::optim::SGD: parameters 0-3 with lr 0.125, momentum 0.25"),
                    HasSubstr("rank 1 has torch::optim::SGD"), HasSubstr("momentum 0.5")));
  EXPECT_THAT(refusal([](std::vector<at::Tensor> masters) {
                return std::make_unique<torch::optim::AdamW>(
                    std::move(masters), torch::optim::AdamWOptions(1e-3).betas(
                                            {0.5, runtime().rank() == 1 ? 0.25 : 0.75}));
              }),
              AllOf(HasSubstr("betas (0.5, 0.75)"), HasSubstr("betas (0.5, 0.25)")));
  EXPECT_THAT(refusal([](std::vector<at::Tensor> masters) {
                if (runtime().rank() == 1) {
                  masters.pop_back();
                }
                return std::make_unique<torch::optim::SGD>(std::move(masters), 0.1);
              }),
              AllOf(HasSubstr("parameters 0-3 with"), HasSubstr("parameters 0-2 with")));
}

}  // namespace
}  // namespace lockstep
