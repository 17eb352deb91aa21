// Trials whose updates are taken back: what the searches for a learning rate and a batch size rest
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/batch_size_finder.h>
#include <lockstep/runtime/local_updates.h>
#include <lockstep/runtime/storage/impl/state_copy.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstring>
#include <memory>
#include <stdexcept>

#include "error_of.h"
#include "runtime/trained_mlp.h"
#include "runtime/trainer_runs.h"

namespace lockstep {

using namespace detail;

namespace {

using ::testing::AllOf;
using testing::Branches;
using testing::error_of;
using ::testing::HasSubstr;
using testing::overflow_factor;
using testing::runtime;
using testing::scaled_loss;

struct Trained : testing::TrainedMlp {
  explicit Trained(const TrainerOptions& options = {}, HostActs acts = HostActs::at_once)
      : TrainedMlp(options, acts, AdamW(1e-2)) {}
};

bool is_last() {
  return runtime().rank() == runtime().size() - 1;
}

TEST(KeptTraining, AFailureInTheLastWindowOfATrialReachesEveryRank) {
  for (const HostActs acts : {HostActs::at_once, HostActs::one_window_late}) {
    Trained run(TrainerOptions(), acts);
    run.step(0);
    const at::Tensor before = run.masters();
    EXPECT_THAT(error_of([&] {
                  KeptTraining kept(run.trainer.impl(), "a search");
                  run.step(1);
                  run.trainer.step([&]() -> Loss {
                    if (is_last()) {
                      throw std::runtime_error("no such file: batch.bin");
                    }
                    return scaled_loss(*run.model, 2);
                  });
                  kept.give_back();
                }),
                HasSubstr("no such file: batch.bin"));
    EXPECT_TRUE(at::equal(run.masters(), before));
    EXPECT_EQ(run.trainer.impl().step->updates(), 1);
    EXPECT_FALSE(run.step(1).skipped());
    run.trainer.impl().step->settle();
    EXPECT_TRUE(run.trainer.replicas_agree());
  }
}

TEST(KeptTraining, ATrialThatIsLeftEarlyGoesBackOnAnyHost) {
  for (const HostActs acts : {HostActs::at_once, HostActs::one_window_late}) {
    for (const int64_t accumulate : {1, 2}) {
      Trained run(TrainerOptions().accumulate(accumulate), acts);
      Trained undisturbed(TrainerOptions().accumulate(accumulate), acts);
      for (int64_t step = 0; step < accumulate; ++step) {
        run.step(step);
        undisturbed.step(step);
      }
      {
        const KeptTraining kept(run.trainer.impl(), "a search");
        for (int64_t step = 0; step < accumulate + 1; ++step) {
          run.step(7 + step);
        }
      }
      for (int64_t step = 0; step < 2 * accumulate; ++step) {
        run.step(step);
        undisturbed.step(step);
      }
      EXPECT_TRUE(at::equal(run.masters(), undisturbed.masters())) << accumulate;
      EXPECT_EQ(run.trainer.impl().step->updates(), 3);
    }
  }
}

/// Of a device that is not here.
at::Tensor unreadable() {
  return at::detail::make_tensor<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::XLA),
                                                  caffe2::TypeMeta::Make<float>(),
                                                  c10::Device(c10::kXLA, 0));
}

std::string last_rank_says() {
  return c10::str("rank ", runtime().size() - 1, ": ");
}

TEST(KeptTraining, StateThatARankCannotReadIsAnErrorOfEveryRank) {
  for (const bool shard : {false, true}) {
    Trained run(TrainerOptions().shard_optimizer(shard));
    at::Tensor hidden = at::ones({2});
    run.trainer.impl().loop.add("hidden", &hidden);
    if (is_last()) {
      hidden = unreadable();
    }
    EXPECT_THAT(
        error_of([&] { KeptTraining(run.trainer.impl(), "a search"); }),
        AllOf(HasSubstr("a search: keeping the state in memory"), HasSubstr(last_rank_says())));
    run.step(0);
  }
}

TEST(KeptTraining, MomentsThatARankCannotReadAreAnErrorOfEveryRankThatGathers) {
  Trained run(TrainerOptions().shard_optimizer(true));
  run.step(0);
  StateCopy copy(Communicator(runtime().control()));
  copy.take([&](StateArchive& archive) {
    archive.part("first", is_last() ? unreadable() : at::ones({2}), 2 * runtime().rank(),
                 at::empty({2 * runtime().size()}));
    run.trainer.impl().storage.updater().visit_state(run.trainer.impl().storage.reducer(), archive);
  });
  EXPECT_THAT(error_of([&] {
                run.trainer.impl().agreement.attempt("a search", [&] { copy.require_taken(); });
              }),
              AllOf(HasSubstr("a search: "), HasSubstr(last_rank_says())));
  run.step(1);
}

TEST(KeptTraining, CountersOfADisabledLossScalerGoBack) {
  Trained run;
  run.step(0);
  const at::Tensor bytes = state_bytes(run.trainer.impl().step->scaler());
  const auto* state = static_cast<const amp::ScalerState*>(bytes.const_data_ptr());
  const amp::ScalerState before = *state;
  {
    KeptTraining kept(run.trainer.impl(), "a search");
    run.step(1);
    EXPECT_TRUE(run.step(2, overflow_factor).skipped());
    kept.give_back();
  }
  EXPECT_EQ(state->iteration, before.iteration);
  EXPECT_EQ(state->skipped, before.skipped);
  EXPECT_EQ(state->consecutive_skips, before.consecutive_skips);
  EXPECT_EQ(state->last_overflow, before.last_overflow);
}

enum class Between { nothing, trial, freezing };

/// The masters of `right`, which gets gradients from the third step on.
at::Tensor late_branch(bool sharded, Between between) {
  at::manual_seed(3);
  auto model = std::make_shared<Branches>();
  Trainer trainer(std::make_unique<TrainerImpl>(
      runtime(), model, AdamW(1e-2),
      TrainerOptions().shard_optimizer(sharded).unused(UnusedParameters::detect),
      HostActs::at_once));
  const at::Tensor x = testing::drawn({5, 3}, 9);
  const auto step = [&](bool late) {
    trainer.step([&]() -> Loss {
      const at::Tensor loss = model->left->forward(x).square().mean();
      return late ? loss + model->right->forward(x).square().mean() : loss;
    });
  };
  for (int64_t i = 0; i < 7; ++i) {
    if (i == 4 && between == Between::trial) {
      KeptTraining kept(trainer.impl(), "a search");
      step(true);
      step(false);
      kept.give_back();
    } else if (i == 4 && between == Between::freezing) {
      model->left->bias.set_requires_grad(false);
      trainer.adopt_trainable();
    }
    step(i >= 2);
  }
  return model->right->weight.detach().clone();
}

TEST(KeptTraining, UpdatesThatAShardedParameterMissedAreKept) {
  EXPECT_TRUE(at::equal(late_branch(true, Between::trial), late_branch(true, Between::nothing)));
}

TEST(AdoptTrainable, UpdatesThatAShardedParameterMissedAreKept) {
  EXPECT_TRUE(at::allclose(late_branch(true, Between::freezing),
                           late_branch(false, Between::freezing), 1e-6, 1e-7));
}

TEST(BatchSizeFinder, RefusesOptionsThatATrialWouldChange) {
  const auto refusal = [](const TrainerOptions& options) {
    return error_of([&] { KeptTraining::require_any_size(options, "find_batch_size"); });
  };
  EXPECT_THAT(refusal(TrainerOptions().cuda_graph(true)),
              HasSubstr("find_batch_size: with TrainerOptions.cuda_graph"));
  EXPECT_THAT(refusal(TrainerOptions().activation_budget("1 GiB")),
              HasSubstr("find_batch_size: with TrainerOptions.activation_budget(1 GiB)"));
  KeptTraining::require_any_size(TrainerOptions().activation_budget("automatic"), "");
  torch::nn::Sequential model{torch::nn::Linear(4, 4), torch::nn::Linear(4, 2)};
  model->to(testing::device());
  Trainer planned(runtime(), model, SGD(0.1), TrainerOptions().activation_budget("1 GiB"));
  EXPECT_THAT(error_of([&] { static_cast<void>(find_batch_size(planned, [](int64_t) {})); }),
              HasSubstr("TrainerOptions.activation_budget"));
  Trainer apart(runtime(), Trained::made(), SGD(0.1),
                TrainerOptions().local_updates(LocalUpdates(2)));
  EXPECT_THAT(error_of([&] { static_cast<void>(find_batch_size(apart, [](int64_t) {})); }),
              HasSubstr("find_batch_size: with TrainerOptions.local_updates"));
}

}  // namespace
}  // namespace lockstep
