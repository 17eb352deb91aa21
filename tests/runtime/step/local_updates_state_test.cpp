// Rounds of local updates: what is saved, loaded, adopted and compared in the middle of one.
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/storage/impl/state_copy.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include "error_of.h"
#include "local_runs.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::kRound;
using testing::local;
using testing::several_ranks;
using testing::Trained;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::EndsWith;
using testing::equal_on_all_ranks;
using testing::error_of;
using testing::flat_masters;
using ::testing::HasSubstr;
using testing::meet;
using testing::Mlp;
using testing::overflow_factor;
using testing::runtime;
using testing::scaled_loss;
using testing::SharedFolder;
using testing::step_path;

SnapshotOptions saved_at_once(const std::string& folder) {
  return SnapshotOptions().folder(folder).asynchronous(false);
}

/// Trains `updates` updates and saves the last one.
void save_run(const std::string& folder, TrainerOptions options, int64_t updates) {
  Trained run(options.snapshots(saved_at_once(folder)));
  run.steps(updates);
  run.trainer.save();
}

TEST(LocalUpdatesState, SaveAfterFinishRoundIsAFurtherSnapshotOfTheUpdate) {
  const SharedFolder folder;
  Trained run(local(LocalUpdates(kRound)).snapshots(saved_at_once(folder.file("run"))));
  run.steps(1);
  run.trainer.save();
  run.trainer.save();  // nothing changed
  EXPECT_FALSE(run.trainer.finish_saving()->path.empty());
  run.trainer.finish_round();
  run.trainer.save();
  EXPECT_THAT(run.trainer.finish_saving()->path, EndsWith("step-000000000001.1"));
  Trained resumed(local(LocalUpdates(kRound)));
  resumed.trainer.resume(folder.file("run"));
  EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), flat_masters(run.trainer)));
  run.steps(kRound);
  run.trainer.save();
  run.trainer.finish_round();  // the round has just ended
  run.trainer.save();
  EXPECT_THAT(run.trainer.finish_saving()->path, EndsWith("step-000000000004"));
}

TEST(LocalUpdatesState, AdoptedWeightsAreTheSameOnAllRanksToTheLastBit) {
  for (const auto& precision :
       {Precision::O2(at::kBFloat16), Precision::O2(at::kBFloat16).remainders()}) {
    SCOPED_TRACE(precision.describe());
    Trained run(local(LocalUpdates(kRound)).precision(precision), SGD(1e-6));
    run.steps(1);  // ranks differ in the low bits of masters only
    ASSERT_EQ(equal_on_all_ranks(flat_masters(run.trainer)), !several_ranks());
    run.trainer.adopt_weights();
    EXPECT_TRUE(equal_on_all_ranks(flat_masters(run.trainer)));
    EXPECT_TRUE(run.trainer.replicas_agree());
    const at::Tensor adopted = flat_masters(run.trainer);
    run.trainer.finish_round();
    EXPECT_TRUE(at::equal(flat_masters(run.trainer), adopted));
  }
}

TEST(LocalUpdatesState, SnapshotWithOtherTrainableParametersIsRefusedAndChangesNothing) {
  const SharedFolder folder;
  {
    const auto model = std::make_shared<Mlp>();
    model->first->weight.set_requires_grad(false);
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions().snapshots(saved_at_once(folder.file("run"))));
    trainer.step([&] { return scaled_loss(*model, 0); });
    trainer.save();
  }
  Trained run(local(LocalUpdates(kRound)));
  run.steps(1);
  const at::Tensor before = flat_masters(run.trainer).clone();
  try {
    run.trainer.resume(folder.file("run"));
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::snapshot);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(step_path(folder.file("run"), 1)),
                                    HasSubstr("first.weight"), HasSubstr("load_weights()")));
  }
  EXPECT_TRUE(run.model->first->weight.requires_grad());
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), before));
  run.steps(kRound - 1);
  EXPECT_TRUE(equal_on_all_ranks(flat_masters(run.trainer)));
}

TEST(LocalUpdatesState, WeightsThatDoNotFitLeaveTheRoundAsItIs) {
  const SharedFolder folder;
  if (runtime().is_main()) {
    snapshot::save_safetensors(folder.file("w.safetensors"), {{"other", at::ones({3})}});
  }
  meet();
  Trained unbroken(local(LocalUpdates(kRound)));
  unbroken.steps(kRound);
  Trained run(local(LocalUpdates(kRound)));
  run.steps(2);
  const at::Tensor before = flat_masters(run.trainer).clone();
  EXPECT_THAT(error_of([&] { run.trainer.load_weights(folder.file("w.safetensors")); }),
              HasSubstr("other"));
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), before));
  run.steps(1);
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(unbroken.trainer)));
}

TEST(LocalUpdatesState, WeightsThatAreNotLoadedGoBackToTheLastExchange) {
  const SharedFolder folder;
  for (const auto& precision : {Precision::O0(), Precision::O2(at::kBFloat16).remainders()}) {
    SCOPED_TRACE(precision.describe());
    if (runtime().is_main()) {
      snapshot::save_safetensors(folder.file("w.safetensors"), {{"first.bias", at::ones({8})}});
    }
    meet();
    Trained run(local(LocalUpdates(kRound)).precision(precision));
    const at::Tensor start = run.trainer.masters()[0].second.clone();
    run.steps(2);
    run.trainer.load_weights(folder.file("w.safetensors"),
                             {snapshot::Match::partial, nullptr, nullptr});
    EXPECT_TRUE(run.trainer.replicas_agree());
    EXPECT_TRUE(equal_on_all_ranks(flat_masters(run.trainer)));
    EXPECT_TRUE(at::equal(run.trainer.masters()[0].second, start));
    EXPECT_TRUE((run.model->first->bias == 1.0).all().item<bool>());
    meet();
  }
}

TEST(LocalUpdatesState, DiagnosisIsTheSameOnAllRanks) {
  Trained run(local(LocalUpdates(kRound)));
  run.trainer.diagnose_next_overflow();
  run.steps(1);
  const bool overflows = runtime().rank() == runtime().size() - 1;
  run.trainer.backward(scaled_loss(*run.model, 1, overflows ? overflow_factor : 1.0F));
  EXPECT_TRUE(run.trainer.update().skipped());
  EXPECT_THAT(run.trainer.diagnosis(), HasSubstr("first.weight"));
  Communicator control = runtime().control();
  EXPECT_THAT(control.all_gather_bytes(run.trainer.diagnosis()), Each(run.trainer.diagnosis()));
}

TEST(LocalUpdatesState, RunWithoutThemGoesOnFromTheLastExchange) {
  const SharedFolder folder;
  const auto options = local(LocalUpdates::diloco(kRound));
  at::Tensor exchanged;
  {
    Trained run(TrainerOptions(options).snapshots(saved_at_once(folder.file("run"))));
    run.steps(kRound);
    exchanged = flat_masters(run.trainer).clone();
    run.steps(1);
    run.trainer.save();
  }
  Trained run(TrainerOptions{});
  const ResumeReport report = run.trainer.resume(folder.file("run"));
  EXPECT_TRUE(report.resumed);
  EXPECT_THAT(report.notes, Contains(HasSubstr("the weights of the last exchange")));
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), exchanged));
  EXPECT_TRUE(run.trainer.replicas_agree());
  run.steps(1);
}

TEST(LocalUpdatesState, SnapshotOfASynchronousRunSetsTheOuterMomentumToZero) {
  const SharedFolder folder;
  save_run(folder.file("run"), TrainerOptions(), 2);
  const auto go_on = [&](int64_t updates_before) {
    Trained run(local(LocalUpdates::diloco(kRound)));
    run.steps(updates_before);
    run.trainer.resume(folder.file("run"));
    run.count = 2;
    run.steps(kRound);
    return flat_masters(run.trainer).clone();
  };
  const at::Tensor fresh = go_on(0);
  EXPECT_TRUE(at::equal(go_on(kRound), fresh));
}

TEST(LocalUpdatesState, OtherNumberOfRanksGoesOnFromTheLastExchange) {
  const SharedFolder folder;
  const auto options = local(LocalUpdates(kRound));
  at::Tensor exchanged;
  {
    Trained run(TrainerOptions(options).snapshots(saved_at_once(folder.file("run"))));
    run.steps(kRound);
    exchanged = flat_masters(run.trainer).clone();
    run.steps(2);
    run.trainer.save();
  }
  if (!several_ranks() || !runtime().is_main()) {
    return;
  }
  Runtime alone = Runtime::solo();
  Trained run(options, AdamW(1e-2), alone);
  const ResumeReport report = run.trainer.resume(folder.file("run"));
  EXPECT_THAT(report.notes, Contains(AllOf(HasSubstr(c10::str("saved by ", runtime().size())),
                                           HasSubstr("goes on with 1"),
                                           HasSubstr("2 updates after it are lost"))));
  EXPECT_EQ(run.trainer.updates(), kRound + 2);
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), exchanged));
  run.steps(1);
  run.trainer.finish_round();
}

TEST(LocalUpdatesState, ABitFlippedInTheWeightsAtTheStartOfARoundIsNamed) {
  if (!several_ranks()) {
    return;
  }
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(std::make_unique<TrainerImpl>(
      runtime(), model, AdamW(1e-2), local(LocalUpdates(100)).compare_replicas_every(1)));
  const auto step = [&] { trainer.step([&] { return scaled_loss(*model, 0); }); };
  step();
  if (runtime().rank() == 1) {
    const at::Tensor& anchor = trainer.impl().storage.rounds()->anchors().front();
    static_cast<unsigned char*>(anchor.mutable_data_ptr())[5] ^= 0x10U;
  }
  try {
    step();
    trainer.impl().step->settle();
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::diverged);
    EXPECT_THAT(error.what(), HasSubstr("(at the start of the round)"));
  }
}

TEST(LocalUpdatesState, AverageOfMomentsGivesAllRanksTheSameMoments) {
  for (const bool average : {false, true}) {
    const auto model = (at::manual_seed(11), std::make_shared<Mlp>());
    Trainer trainer(std::make_unique<TrainerImpl>(
        runtime(), model, AdamW(1e-2), local(LocalUpdates(kRound).average_moments(average))));
    for (int64_t update = 0; update < kRound; ++update) {
      trainer.step([&] { return scaled_loss(*model, update); });
    }
    StateCopy moments;
    moments.take([&](StateArchive& archive) {
      trainer.impl().storage.updater().visit_state(trainer.impl().storage.reducer(), archive);
    });
    ASSERT_EQ(moments.tensors().size(), 8U);
    for (const auto& [name, moment] : moments.tensors()) {
      EXPECT_EQ(equal_on_all_ranks(moment), average || !several_ranks()) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep
