// Option texts: what they set, and what is refused.
#include <gmock/gmock.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/bindings/c/text/option_text.h>
#include <lockstep/bindings/c/text/runtime_text.h>
#include <lockstep/bindings/c/text/trainer_text.h>
#include <lockstep/runtime/step/impl/option_fields.h>

#include "error_of.h"
#include "test_names.h"

namespace lockstep::c {
namespace {

using lockstep::testing::error_of;

TEST(OptionText, IsKeysAndValues) {
  const auto options = read_options(" accumulate=4\tsnapshots.folder=\"my runs\"\n a= ");
  ASSERT_EQ(options.size(), 3U);
  EXPECT_EQ(options[0].key(), "accumulate");
  EXPECT_EQ(options[0].integer(), 4);
  EXPECT_EQ(options[1].text(), "my runs");
  EXPECT_EQ(options[2].text(), "");
  EXPECT_THAT(error_of([] { read_options("loss = mse"); }), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of([] { read_options("=4"); }), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of([] { read_options("a=\"b c"); }), HasSubstr("closing quote"));
  EXPECT_THAT(error_of([] { read_options("a=1 b=2 a=1"); }), HasSubstr("a is given twice"));
}

TEST(OptionText, TakesABlankAfterAComma) {
  const auto options = read_options("a=f(10, 0.5)  b=x,\ty c=\"x , y\" d=x, e=1 g=z,");
  ASSERT_EQ(options.size(), 6U);
  EXPECT_EQ(options[0].text(), "f(10,0.5)");
  EXPECT_EQ(options[1].text(), "x,y");
  EXPECT_THAT(options[2].list(), ElementsAre("x", "y"));
  EXPECT_EQ(options[2].text(), "x , y") << "a folder may have such a name";
  EXPECT_EQ(options[3].text(), "x,");
  EXPECT_EQ(options[5].text(), "z,");
  EXPECT_EQ(
      trainer_text("loss=mse schedule=\"StepDecay( 10, 0.5 )\"").options.schedule().describe(),
      StepDecay(10, 0.5).describe());
  EXPECT_THAT(error_of([] { read_options("a=f(10 ,0.5)"); }), HasSubstr("expected key=value"));
}

TEST(OptionText, RefusesValuesOfAnotherKind) {
  const OptionValue value("accumulate", "4x");
  EXPECT_THAT(error_of([&] { value.integer(); }), HasSubstr("accumulate is \"4x\""));
  EXPECT_THAT(error_of([&] { value.real(); }), HasSubstr("a number"));
  EXPECT_THAT(error_of([&] { value.boolean(); }), HasSubstr("true or false"));
  EXPECT_THAT(error_of([] { OptionValue("seed", "-1").natural(); }), HasSubstr("not negative"));
  EXPECT_EQ(OptionValue("clip_grad_norm", "inf").real(), INFINITY);
  EXPECT_EQ(OptionValue("lr", "1e-3").real(), 1e-3);
  EXPECT_EQ(OptionValue("lr", "1d-3").real(), 1e-3) << "as Fortran writes it";
}

TEST(OptionText, SetsRuntimeOptions) {
  const RuntimeOptions options = runtime_options(
      "seed=18446744073709551615 timeout=2.5 threads=3 device=cpu tf32=false share_device=1 "
      "transport=staged check_collectives=0 cudnn_benchmark=true deterministic=true");
  EXPECT_EQ(options.seed(), UINT64_MAX);
  EXPECT_EQ(options.timeout(), std::chrono::milliseconds(2500));
  EXPECT_EQ(options.threads(), 3);
  EXPECT_EQ(options.device(), DeviceKind::cpu);
  EXPECT_EQ(options.tf32(), std::optional<bool>(false));
  EXPECT_TRUE(options.share_device());
  EXPECT_EQ(options.transport(), DeviceTransport::staged);
  EXPECT_FALSE(options.check_collectives());
  EXPECT_TRUE(options.cudnn_benchmark() && options.deterministic());
  EXPECT_THAT(error_of([] { runtime_options("sed=1"); }),
              HasSubstr("\"sed\" is no option of a runtime; the nearest are \"seed\""));
  EXPECT_THAT(error_of([] { runtime_options("timeout=0"); }), HasSubstr("at least 0.001"));
  EXPECT_THAT(error_of([] { runtime_options("device=gpu"); }), HasSubstr("\"cpu\""));
}

TEST(OptionText, SetsWhatTheOptionsOfCppSet) {
  const TrainerText text = trainer_text(
      "precision.wire=fp16 loss=l1 optimizer.weight_decay=0.1 optimizer=Adam optimizer.lr=3e-4 "
      "precision=O2 precision.compute=bf16 precision.keep_fp32=a,b.c accumulate=4 "
      "precision.norms=Scaler,ln "
      "clip_grad_norm=1 schedule=WarmupCosine(500,20000) optimizer.moments=bf16 "
      "optimizer.no_decay_on_norms_and_biases=true loss_scale.growth_interval=100 unused=zeros "
      "buffers=average ema=0.5 shard_optimizer=true bucket_bytes=4096 snapshots.folder=runs "
      "snapshots.keep.last=2 snapshots.asynchronous=false uneven_data=true");
  EXPECT_EQ(text.loss, LossKind::l1);
  const auto expected =
      TrainerOptions()
          .precision(Precision::O2(at::kBFloat16)
                         .wire(at::kHalf)
                         .keep_fp32("a")
                         .keep_fp32("b.c")
                         .norms("Scaler")
                         .norms("ln")
                         .loss_scale(amp::LossScalerOptions::torch().growth_interval(100)))
          .accumulate(4)
          .clip_grad_norm(1)
          .schedule(WarmupCosine(500, 20000))
          .unused(UnusedParameters::zeros)
          .buffers(BufferPolicy::average)
          .ema(0.5)
          .shard_optimizer(true)
          .buckets(BucketOptions().bucket_bytes(4096))
          .snapshots(
              SnapshotOptions().folder("runs").asynchronous(false).keep(KeepOptions().last(2)))
          .uneven_data(true);
  EXPECT_EQ(text.options.describe(), expected.describe());
  EXPECT_EQ(text.options.precision().fields(), expected.precision().fields());
  EXPECT_EQ(text.options.snapshots().folder(), "runs");
  EXPECT_EQ(text.options.snapshots().keep().last(), 2);
  EXPECT_FALSE(text.options.snapshots().asynchronous());
  EXPECT_EQ(text.options.precision().loss_scaler_options().growth_interval(), 100);
  EXPECT_EQ(text.optimizer->describe(), Adam(3e-4)
                                            .weight_decay(0.1)
                                            .moments(MomentFormat::bf16)
                                            .no_decay_on_norms_and_biases()
                                            .describe());
  EXPECT_EQ(text.optimizer->groups(), 2);
  EXPECT_NO_THROW(text.options.validate());
}

TEST(OptionText, SetsEachOptionThatIsInTheListOfTrainerOptions) {
  TrainerOptions whole;
  whole.precision(Precision::O0().loss_scale({}));
  size_t keys = 0;
  for (const detail::OptionRow& row : detail::rows_of(whole)) {
    const bool is_inner =
        row.name.rfind("precision.loss_scale.", 0) == 0 || row.name.rfind("buckets.", 0) == 0;
    const std::string key = is_inner ? row.name.substr(row.name.find('.') + 1) : row.name;
    std::string error;
    try {
      trainer_text("loss=mse precision=O1 " + key + "=?");
    } catch (const Error& refusal) {
      error = refusal.what();
    }
    const bool has_calls = error.find("is no option") == std::string::npos;
    EXPECT_EQ(has_calls, row.name != "cuda_graph" && row.name != "losses" &&
                             row.name != "local_updates" && row.name != "reduce_on_plateau" &&
                             row.name != "activation_chain" && row.name != "precision.level" &&
                             row.name != "precision.loss_scale")
        << row.name << ": " << error;
    keys += has_calls ? 1 : 0;
  }
  EXPECT_GT(keys, 45U);
  EXPECT_EQ(trainer_text("loss=mse leaves=8 reproducible=1 snapshots.keep.best=0 "
                         "activation_budget=\"1 GiB\"")
                .options.describe(),
            TrainerOptions().leaves(8).reproducible(true).activation_budget("1 GiB").describe());
}

TEST(OptionText, HasEachOptimizerAndSchedule) {
  EXPECT_EQ(trainer_text("loss=mse").optimizer->describe(), AdamW().describe());
  EXPECT_EQ(trainer_text("loss=mse optimizer=SGD optimizer.lr=1 optimizer.momentum=0.9 "
                         "optimizer.nesterov=true")
                .optimizer->describe(),
            SGD(1).momentum(0.9).nesterov(true).describe());
  EXPECT_EQ(trainer_text("loss=mse optimizer=LAMB optimizer.eps=1e-4").optimizer->describe(),
            LAMB().eps(1e-4).describe());
  EXPECT_EQ(trainer_text("loss=mse optimizer=Lion optimizer.beta2=0.5").optimizer->describe(),
            Lion().beta2(0.5).describe());
  const auto schedule = [](const std::string& text) {
    return trainer_text("loss=mse schedule=" + text).options.schedule().describe();
  };
  EXPECT_EQ(schedule("Constant"), Constant().describe());
  EXPECT_EQ(schedule("WarmupLinear(1,9,0.5)"), WarmupLinear(1, 9, 0.5).describe());
  EXPECT_EQ(schedule("WarmupStableDecay(1,2,9)"), WarmupStableDecay(1, 2, 9).describe());
  EXPECT_EQ(schedule("StepDecay(7)"), StepDecay(7).describe());
  EXPECT_EQ(schedule("OneCycle(90,0.2)"), OneCycle(90, 0.2).describe());
  EXPECT_EQ(schedule("MultiStepDecay(3,5,0.5)"), MultiStepDecay({3, 5}, 0.5).describe());
  EXPECT_THAT(error_of([&] { schedule("WarmupCosine(5)"); }), HasSubstr("warmup,total"));
  EXPECT_THAT(error_of([&] { schedule("WarmupCosine(5,1.5)"); }), HasSubstr("whole numbers"));
  EXPECT_THAT(error_of([&] { schedule("WarmupCosin(5,9)"); }), HasSubstr("\"WarmupCosine\""));
  EXPECT_THAT(error_of([&] { schedule("StepDecay(7"); }), HasSubstr("brackets"));
}

TEST(OptionText, RefusesWhatCannotBeMeant) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { trainer_text(text); });
  };
  EXPECT_THAT(refusal("accumulate=4"), HasSubstr("needs the option loss"));
  EXPECT_THAT(refusal("loss=mse optimizer=SGD"), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refusal("loss=mse optimizer.momentum=0.9"),
              HasSubstr("\"optimizer.momentum\" is no option of AdamW; the nearest are"));
  EXPECT_THAT(refusal("loss=mse optimizer=Adamw"), HasSubstr("\"AdamW\""));
  EXPECT_THAT(refusal("loss=mse precision.compute=bf16"), HasSubstr("precision=O1"));
  EXPECT_THAT(refusal("loss=huber"), HasSubstr("loss is \"huber\""));
  EXPECT_THAT(refusal("loss=mse optimizer.moments=int8"),
              AllOf(HasSubstr("optimizer.moments is \"int8\""), HasSubstr("\"bf16\""),
                    HasSubstr("\"fp32\"")));
  EXPECT_THAT(refusal("loss=mse loss_scale=big"), HasSubstr("\"apex\""));
  EXPECT_THAT(refusal("loss=mse snapshots.foldr=a"), HasSubstr("\"snapshots.folder\""));
}

}  // namespace
}  // namespace lockstep::c
