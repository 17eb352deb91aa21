// lockstep inspect and lockstep export.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/model_files.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launch.h"
#include "runtime/temporary_folder.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A run with snapshots of steps 1 and 2, which differ in one weight.
struct SmallRun {
  SmallRun() {
    snapshot::Writer writer(Communicator::solo(), folder.path() + "/run",
                            snapshot::WriterOptions().run("small"));
    for (int64_t step : {1, 2}) {
      const at::Tensor weight = at::full({2, 3}, step, at::kFloat);
      snapshot::Content content;
      content.text("precision", "O0");
      content.add("model", "embed.weight", weight);
      content.add("model", "head.weight", weight);
      content.add("model", "head.bias", at::full({3}, 0.5, at::kFloat));
      writer.save(content, step);
    }
  }
  std::string step(int64_t number) const {
    return folder.path() + "/run/step-00000000000" + std::to_string(number);
  }
  TemporaryFolder folder;
};

TEST(SnapshotTool, InspectSaysWhatIsThereAndVerifiesIt) {
  const SmallRun run;
  const Launched one = launch({"inspect", "--tensors", run.step(2)});
  EXPECT_EQ(one.code, 0) << one.error;
  EXPECT_THAT(one.out, AllOf(HasSubstr("small"), HasSubstr("precision  O0"),
                             HasSubstr("model      2 tensors"), HasSubstr("head.weight"),
                             HasSubstr("[2, 3]"), HasSubstr("every byte")));
  const Launched latest = launch({"inspect", run.folder.path() + "/run/latest"});
  EXPECT_EQ(latest.code, 0) << latest.error;
  EXPECT_THAT(latest.out, HasSubstr("step       2"));
  const Launched all = launch({"inspect", run.folder.path() + "/run"});
  EXPECT_EQ(all.code, 0) << all.error;
  EXPECT_THAT(all.out,
              AllOf(HasSubstr("step-000000000001  whole"), HasSubstr("step-000000000002  whole")));
}

TEST(SnapshotTool, InspectOfADamagedSnapshotEndsWith11AndNamesTheTensor) {
  const SmallRun run;
  std::fstream file(run.step(1) + "/model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary | std::ios::ate);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const Launched one = launch({"inspect", run.step(1)});
  EXPECT_EQ(one.code, 11);
  EXPECT_THAT(one.error, AllOf(HasSubstr("model.safetensors"), HasSubstr("is damaged")));
  EXPECT_THAT(launch({"inspect", run.folder.path() + "/run"}).out,
              AllOf(HasSubstr("step-000000000001  cannot be used"), HasSubstr("whole")));
  EXPECT_EQ(launch({"inspect", run.folder.path()}).code, 11);
  std::filesystem::remove_all(run.step(2));
  const Launched none = launch({"inspect", run.folder.path() + "/run"});
  EXPECT_EQ(none.code, 11);
  EXPECT_THAT(none.error, HasSubstr("no snapshot in it can be used"));
}

TEST(SnapshotTool, InspectOfARunShowsTheMetrics) {
  const TemporaryFolder folder;
  snapshot::Writer writer(Communicator::solo(), folder.path() + "/run", {});
  for (int64_t step : {1, 2}) {
    snapshot::Content content;
    content.add("model", "weight", at::zeros({1}));
    writer.save(content, step, step == 2 ? std::make_optional(0.875) : std::nullopt);
  }
  const Launched all = launch({"inspect", folder.path() + "/run"});
  EXPECT_THAT(all.out, ::testing::ContainsRegex("step-000000000002 [^\n]*, metric 0.875\n"));
  EXPECT_THAT(all.out, ::testing::Not(::testing::ContainsRegex("step-000000000001 [^\n]*metric")));
}

TEST(SnapshotTool, AFurtherSnapshotOfAStepIsListedAfterTheEarlierAndTakenBeforeIt) {
  const SmallRun run;
  for (const char* number : {"2", "10"}) {
    std::filesystem::copy(run.step(2), run.step(2) + "." + number);
  }
  const std::string folder = run.folder.path() + "/run";
  EXPECT_THAT(
      launch({"inspect", folder}).out,
      ::testing::ContainsRegex("2  whole[^\n]*\n[^\n]*2[.]2  whole[^\n]*\n[^\n]*2[.]10  whole"));
  EXPECT_EQ(launch({"inspect", run.step(2) + ".10"}).code, 0);
  EXPECT_EQ(launch({"inspect", run.step(2), run.step(2) + ".10"}).code, 0);
  EXPECT_THAT(launch({"export", folder, run.folder.path() + "/weights.safetensors"}).out,
              HasSubstr("step-000000000002.10 written"));
}

TEST(SnapshotTool, ExportOfARunTakesTheNewestWholeSnapshot) {
  const SmallRun run;
  const std::string file = run.folder.path() + "/weights.safetensors";
  const auto exported_sum = [&] {
    const Launched done = launch({"export", run.folder.path() + "/run", file});
    EXPECT_EQ(done.code, 0) << done.error;
    return snapshot::SafetensorsFile(file).tensor("embed.weight").sum().item<float>();
  };
  EXPECT_EQ(exported_sum(), 12.0F);
  const auto damage = [&](int step) {
    std::fstream weights(run.step(step) + "/model.safetensors",
                         std::ios::in | std::ios::out | std::ios::binary | std::ios::ate);
    weights.seekp(-1, std::ios::end);
    weights.put('\x7f');
  };
  damage(2);
  EXPECT_EQ(exported_sum(), 6.0F);
  damage(1);
  const Launched damaged = launch({"export", run.folder.path() + "/run", file});
  EXPECT_EQ(damaged.code, 11);
  EXPECT_THAT(damaged.error, HasSubstr(run.step(2))) << "the reason of the newest";
  const Launched none = launch({"export", run.folder.path(), file});
  EXPECT_EQ(none.code, 11);
  EXPECT_THAT(none.error, HasSubstr("nor the folder of a run"));
}

TEST(SnapshotTool, ExportTakesTheBestSnapshotAndTheMovingAverages) {
  const TemporaryFolder folder;
  const std::string run = folder.path() + "/run", file = folder.path() + "/weights.safetensors";
  snapshot::Writer writer(Communicator::solo(), run, {});
  for (int64_t step : {1, 2, 3}) {
    const at::Tensor weight = at::full({2}, static_cast<double>(step), at::kFloat);
    snapshot::Content content;
    content.add("model", "embed.weight", weight);
    content.add("model", "head.weight", weight);
    content.add("model", "count", at::full({1}, 7, at::kLong));
    if (step < 3) {
      content.add("optimizer", "embed.weight.ema", weight + 0.5);
    }
    writer.save(content, step, step == 1 ? 0.25 : 0.5);
  }
  const auto exported = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"export", run, file});
    const Launched done = launch(more);
    EXPECT_EQ(done.code, 0) << done.error;
    const snapshot::SafetensorsFile written(file);
    EXPECT_EQ(written.tensor("count").item<int64_t>(), 7);
    EXPECT_EQ(written.header().metadata.at("head.weight"), "embed.weight");
    return written.tensor("embed.weight")[0].item<float>();
  };
  EXPECT_EQ(exported({}), 3.0F);
  EXPECT_EQ(exported({"--best"}), 1.0F);
  EXPECT_EQ(exported({"--best", "--averaged"}), 1.5F);
  const Launched none = launch({"export", run, file, "--averaged"});
  EXPECT_EQ(none.code, 11);
  EXPECT_THAT(none.error, HasSubstr("step-000000000003 holds no moving averages"));
  EXPECT_EQ(launch({"export", run, file, "--averaged", "--section", "model"}).code, 2);
}

TEST(SnapshotTool, InspectOfTwoNamesWhatDiffers) {
  const SmallRun run;
  const Launched same = launch({"inspect", run.step(1), run.step(1)});
  EXPECT_EQ(same.code, 0) << same.error;
  const Launched other = launch({"inspect", run.step(1), run.step(2)});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, AllOf(HasSubstr("differs:            model  embed.weight"),
                               ::testing::Not(HasSubstr("head.bias"))));
}

TEST(SnapshotTool, ExportWritesOneFileWithTiedNamesInItsMetadata) {
  const SmallRun run;
  const std::string file = run.folder.path() + "/weights.safetensors";
  const Launched done = launch({"export", run.step(2), file});
  EXPECT_EQ(done.code, 0) << done.error;
  const snapshot::SafetensorsFile written(file);
  EXPECT_EQ(written.header().tensors.size(), 2U);
  EXPECT_EQ(written.tensor("embed.weight").sum().item<float>(), 12.0F);
  EXPECT_EQ(written.header().metadata.at("head.weight"), "embed.weight");
  EXPECT_EQ(launch({"export", run.step(2), file, "--section", "none"}).code, 11);
  EXPECT_EQ(launch({"export", run.step(2)}).code, 2);
}

}  // namespace
}  // namespace lockstep::testing
