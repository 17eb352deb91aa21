// What one rank does wrong is an Error on every rank, and the next window works.
#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "runtime/windows_late.h"
#include "test_names.h"

#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

namespace lockstep {
namespace {

/// Where the host acts a window late, it hears of the other ranks' failures only after the window.
void hear_of_others(Trainer& trainer) {
  if (windows_late() > 0) {
    trainer.abandon();
  }
}

/// What every rank throws for what one of them does in `window`.
template <typename Window>
std::string error_of_ranks(Trainer& trainer, const Window& window) {
  return error_of([&] {
    window();
    hear_of_others(trainer);
  });
}

/// Steps once on every rank; the masters must move and stay equal.
void expect_next_window_works(Trainer& trainer, Mlp& model, int64_t accumulate = 1) {
  const at::Tensor before = flat_masters(trainer);
  const int64_t updates = trainer.updates();
  for (int64_t k = 0; k < accumulate; ++k) {
    trainer.step([&] { return scaled_loss(model, k); });
  }
  EXPECT_EQ(trainer.updates(), updates + 1);
  EXPECT_FALSE(at::equal(flat_masters(trainer), before));
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(StepRules, AnExceptionInOneClosureIsRaisedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(3));
  for (int round = 0; round < 2; ++round) {  // before the kind of loss is agreed on, and after
    for (int failing = 0; failing < 3; ++failing) {
      const at::Tensor before = flat_masters(trainer);
      std::string message;
      int reached = 0;
      try {
        for (int k = 0; k < 3; ++k) {
          reached = k;
          trainer.step([&]() -> Loss {
            if (k == failing && runtime().rank() == 1) {
              throw std::runtime_error("no such file: batch.bin");
            }
            return scaled_loss(*model, k);
          });
        }
        hear_of_others(trainer);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, "rank 1: no such file: batch.bin");
      if (runtime().rank() != 1) {
        EXPECT_EQ(reached, 2);
      }
      EXPECT_TRUE(at::equal(flat_masters(trainer), before));
    }
    expect_next_window_works(trainer, *model, 3);
  }
}

/// The Error that step() throws on this rank where `fail` runs in rank 1's closure or backward.
Error error_of_step(Trainer& trainer, Mlp& model, bool in_backward,
                    const std::function<void()>& fail) {
  try {
    trainer.step([&] {
      at::Tensor hidden = at::tanh(model.first->forward(testing::ones({2, 4})));
      if (runtime().rank() == 1 && in_backward) {
        hidden.register_hook([&](const at::Tensor&) -> at::Tensor {
          fail();
          return {};
        });
      } else if (runtime().rank() == 1) {
        fail();
      }
      return Loss(model.second->forward(hidden).sum());
    });
    hear_of_others(trainer);
  } catch (const Error& error) {
    return error;
  }
  return Error("the update was made", ExitCode::ok);
}

TEST(StepRules, AnExceptionInOneBackwardIsRaisedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  const auto tiny = BucketOptions().first_bucket_bytes(1).bucket_bytes(1);
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().buckets(tiny));
  for (int round = 0; round < 2; ++round) {
    const Error error = error_of_step(trainer, *model, true, [] { throw Error("half way"); });
    EXPECT_THAT(error.what(), HasSubstr("half way"));
    expect_next_window_works(trainer, *model);
  }
}

TEST(StepFailures, InTheFirstBackwardReachAllRanksThatWillSave) {
  const testing::SharedFolder folder;
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run"))));
  const Error error = error_of_step(trainer, *model, true, [] { throw Error("half way"); });
  EXPECT_THAT(error.what(), HasSubstr("half way"));
  expect_next_window_works(trainer, *model);
}

TEST(StepRules, OutOfMemoryOnOneRankIsOneErrorWithATableOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, AdamW(0.1), TrainerOptions().precision(half_precision()));
  const std::vector<std::pair<std::string, std::function<void()>>> failures = {
      {"CUDA out of memory",
       [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory"); }},
      {"bad_alloc", [] { throw std::bad_alloc(); }},
      {"you tried to allocate 1125899906842624 bytes",
       [] { at::empty({int64_t{1} << 50}, at::kByte); }},
  };
  for (const auto& [text, fail] : failures) {
    for (const bool in_backward : {false, true}) {
      const at::Tensor before = flat_masters(trainer).clone();
      const Error error = error_of_step(trainer, *model, in_backward, fail);
      EXPECT_EQ(error.code(), ExitCode::out_of_memory);
      EXPECT_THAT(error.what(), HasSubstr("rank 1: out of memory in micro-batch"));
      EXPECT_THAT(error.what(), HasSubstr(text));
      EXPECT_THAT(error.what(), HasSubstr("masters 1 KiB, gradients 512 B, moments 2 KiB"));
      EXPECT_THAT(error.what(), HasSubstr("What needs less: smaller micro-batches"));
      Communicator control = runtime().control();
      for (const std::string& other : control.all_gather_bytes(error.what())) {
        EXPECT_EQ(other, error.what());
      }
      EXPECT_TRUE(at::equal(flat_masters(trainer), before));
      expect_next_window_works(trainer, *model);
    }
  }
}

TEST(StepRules, AFailedDeviceOfOneRankIsOneErrorOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, AdamW(0.1));
  constexpr int32_t launch_failure = 719;
  const Error error = error_of_step(trainer, *model, false, [] {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, launch_failure,
                                "CUDA error: unspecified launch failure");
  });
  EXPECT_EQ(error.code(), ExitCode::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("rank 1: the device failed: CUDA error: unspecified launch"));
  EXPECT_THAT(error.what(), HasSubstr("restart from the last snapshot"));
}

TEST(StepRules, NanInTheFirstLossIsAnErrorOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  try {
    for (int64_t window = 0; window <= 2 * windows_late(); ++window) {
      const bool here = window == 0 && runtime().rank() == 1;
      trainer.step([&] { return scaled_loss(*model, 0, here ? std::nanf("") : 1.0F); });
    }
    hear_of_others(trainer);
    FAIL() << "the update was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::non_finite);
    EXPECT_THAT(error.what(), HasSubstr("the loss is NaN before the first update"));
  }
  expect_next_window_works(trainer, *model);
}

TEST(StepRules, UnusedParametersOfOneRankAreNamedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const std::string message = error_of_ranks(trainer, [&] {
    trainer.step([&]() -> Loss {
      if (runtime().rank() == 1) {
        return model->second->forward(testing::ones({1, 8})).sum();
      }
      return scaled_loss(*model, 0);
    });
  });
  EXPECT_THAT(message, HasSubstr("no gradient in this update: first.weight, first.bias"));
  expect_next_window_works(trainer, *model);
}

TEST(StepRules, MixedKindsOfLossAreNamedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const auto step = [&](bool as_sum) {
    trainer.step([&]() -> Loss {
      const Loss mean = scaled_loss(*model, 0);
      return as_sum ? Loss::sum(mean.tensor() * 5, 5) : mean;
    });
  };
  EXPECT_THAT(error_of([&] { step(runtime().rank() == 1); }),
              HasSubstr("some ranks return Loss::sum, others a mean"));
  expect_next_window_works(trainer, *model);
  EXPECT_THAT(error_of_ranks(trainer, [&] { step(runtime().rank() == 1); }),
              HasSubstr("this loss is a Loss::sum, the earlier ones were not"));
  expect_next_window_works(trainer, *model);
}

TEST(StepRules, ALossThatCannotTrainIsExplainedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const std::vector<std::pair<at::Tensor, std::string>> bad = {
      {at::Tensor(), "undefined loss"},
      {testing::ones({2}), "the loss must have one element"},
      {at::ones({}, at::kLong), "the loss must be floating point"},
      {testing::ones({}), "does not depend on a trainable parameter"},
  };
  for (const auto& [loss, message] : bad) {
    EXPECT_THAT(error_of_ranks(trainer,
                               [&, loss = loss] {
                                 trainer.step([&]() -> Loss {
                                   return runtime().rank() == 1 ? Loss(loss)
                                                                : scaled_loss(*model, 0);
                                 });
                               }),
                HasSubstr(message));
  }
  expect_next_window_works(trainer, *model);
}

TEST(StepRules, AWrongOrderOfCallsSaysWhatToCall) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(2));
  EXPECT_THAT(error_of([&] { trainer.update(); }), HasSubstr("call backward(loss) first"));
  trainer.backward(scaled_loss(*model, 0));
  EXPECT_THAT(error_of([&] { trainer.update(); }), HasSubstr("the window has 1 micro-batches"));
  trainer.backward(scaled_loss(*model, 1));
  EXPECT_THAT(error_of([&] { trainer.backward(scaled_loss(*model, 2)); }),
              HasSubstr("call update() now"));
  EXPECT_THAT(error_of([&] { trainer.step([&] { return scaled_loss(*model, 2); }); }),
              HasSubstr("call update() before the next step()"));
  EXPECT_TRUE(trainer.update().closes_update());
  EXPECT_EQ(trainer.updates(), 1);
}

TEST(StepRules, AbandonForgetsAnUnfinishedWindow) {
  const auto run = [&](bool with_abandoned_window) {
    at::manual_seed(5);
    const auto fresh = std::make_shared<Mlp>();
    Trainer trainer(runtime(), fresh, SGD(0.1), TrainerOptions().accumulate(2));
    if (with_abandoned_window) {
      trainer.step([&] { return scaled_loss(*fresh, 9); });
      trainer.abandon();
    }
    for (int64_t k = 0; k < 2; ++k) {
      trainer.step([&] { return scaled_loss(*fresh, k); });
    }
    EXPECT_EQ(trainer.updates(), 1);
    return flat_masters(trainer);
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(StepRules, StepWithoutDataNeedsItsOptionOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  EXPECT_THAT(error_of_ranks(trainer,
                             [&] {
                               if (runtime().rank() == 1) {
                                 trainer.step_without_data();
                               } else {
                                 trainer.step([&] { return scaled_loss(*model, 0); });
                               }
                             }),
              HasSubstr("needs TrainerOptions().uneven_data(true)"));
  expect_next_window_works(trainer, *model);
}

TEST(CallsInAClosure, ThatChangeTheTrainerAreRefusedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  const testing::SharedFolder folder;
  for (const int64_t accumulate : {1, 2}) {
    Trainer trainer(runtime(), model, SGD(0.1),
                    TrainerOptions()
                        .accumulate(accumulate)
                        .uneven_data(true)
                        .snapshots(SnapshotOptions().folder(folder.file("run"))));
    const auto loss = [&] { return scaled_loss(*model, 0); };
    const std::vector<std::pair<const char*, std::function<void()>>> calls = {
        {"step()", [&] { trainer.step(loss); }},
        {"step_without_data()", [&] { trainer.step_without_data(); }},
        {"backward()", [&] { trainer.backward(loss()); }},
        {"update()", [&] { trainer.update(); }},
        {"save()", [&] { trainer.save(); }},
        {"save()", [&] { trainer.save_and_leave(); }},
        {"finish_saving()", [&] { trainer.finish_saving(); }},
        {"resume()", [&] { trainer.resume(); }},
        {"load_weights()", [&] { trainer.load_weights(folder.file("run")); }},
        {"abandon()", [&] { trainer.abandon(); }},
        {"set_learning_rate()", [&] { trainer.set_learning_rate(0.2); }},
        {"adopt_weights()", [&] { trainer.adopt_weights(); }},
        {"adopt_trainable()", [&] { trainer.adopt_trainable(); }},
        {"finish_round()", [&] { trainer.finish_round(); }},
        {"masters()", [&] { trainer.masters(); }},
        {"averaged()", [&] { trainer.averaged(); }},
        {"replicas_agree()", [&] { trainer.replicas_agree(); }}};
    for (const bool in_a_hook : {false, true}) {
      for (const auto& [name, call] : calls) {
        SCOPED_TRACE(c10::str(name, in_a_hook ? " in a hook of the loss" : ""));
        const bool is_last_rank = runtime().rank() == runtime().size() - 1;
        const auto error = error_of_ranks(trainer, [&, &call = call] {
          for (int64_t k = 0; k < accumulate; ++k) {
            trainer.step([&]() -> Loss {
              const at::Tensor own = loss().tensor();
              if (is_last_rank && k + 1 == accumulate && in_a_hook) {
                own.register_hook([&](const at::Tensor&) { call(); });
              } else if (is_last_rank && k + 1 == accumulate) {
                call();
              }
              return own;
            });
          }
        });
        EXPECT_THAT(error, HasSubstr(std::string(name) + " was called in the closure of step()"));
      }
    }
    expect_next_window_works(trainer, *model, accumulate);
    EXPECT_EQ(trainer.learning_rate(), 0.1);
  }
}

TEST(StepRules, DifferentOptionsOnRanksAreNamedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  const double rate = runtime().rank() == 1 ? 0.2 : 0.1;
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(rate)); }),
              HasSubstr("the options of the Trainer differ between ranks:\n  optimizer is SGD"));
  const auto only = [](const std::string& name) {
    return [name](const ModelTensor& entry) { return entry.name == name; };
  };
  const bool is_second = runtime().rank() == 1;
  EXPECT_THAT(error_of([&] {
                Trainer(
                    runtime(), model,
                    SGD(0.1).group(only(is_second ? "first.weight" : "second.weight"), SGD(0.2)));
              }),
              HasSubstr("\n  optimizer group of first.weight is "));
  EXPECT_THAT(error_of([&] {
                Trainer(runtime(), model,
                        SGD(0.1).group(
                            [&](const ModelTensor&) -> bool {
                              LOCKSTEP_CHECK(!is_second, "no such layer");
                              return false;
                            },
                            SGD(0.2)));
              }),
              HasSubstr("rank 1: no such layer"));
  EXPECT_THAT(
      error_of([&] {
        Trainer(runtime(), model, SGD(0.1),
                TrainerOptions().snapshots(SnapshotOptions().memory_every(2).memory_folder("")));
      }),
      HasSubstr("SnapshotOptions.memory_folder is empty"));
  // Each of these sent the ranks different ways: other files, other collectives.
  const bool is_mine = runtime().rank() == 0;
  TrainerOptions logged;
  logged.digest_log(is_mine ? "digests.jsonl" : "");
  TrainerOptions in_memory;
  in_memory.snapshots(SnapshotOptions().memory_every(is_mine ? 2 : 0));
  TrainerOptions in_shards;
  in_shards.snapshots(SnapshotOptions().min_shard_bytes(is_mine ? 1 : 4 << 20));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), logged); }),
              HasSubstr("\n  digest_log is "));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), in_memory); }),
              HasSubstr("\n  snapshots.memory_every is 0 on rank"));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), in_shards); }),
              HasSubstr("\n  snapshots.min_shard_bytes is 1 on rank 0, 4194304 on rank"));
  EXPECT_THAT(error_of([&] {
                Trainer(runtime(), model, SGD(0.1),
                        TrainerOptions().accumulate(runtime().rank() == 1 ? 0 : 1));
              }),
              HasSubstr("rank 1: TrainerOptions.accumulate must be >= 1, is 0"));
}

TEST(StepRules, AStopRequestIsSeenByAllRanksAtTheSameUpdate) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(2));
  for (int64_t step = 0; step < 8; ++step) {
    if (step == 4 && runtime().rank() == 1) {
      trainer.request_stop();
    }
    trainer.step([&] { return scaled_loss(*model, step); });
    const bool between_windows = step % 2 == 1;
    ASSERT_EQ(trainer.stop_requested(), between_windows && step >= 5 + windows_late()) << step;
  }
}

}  // namespace
}  // namespace lockstep
