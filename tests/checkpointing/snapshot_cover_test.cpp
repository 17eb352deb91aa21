// A snapshot has every tensor once, or it is none: for those who write it and those who read it.
#include "checkpointing/snapshot_rejected.h"
#include "checkpointing/snapshot_sample.h"
#include "collectives/thread_ranks.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/model_files.h>
#include <lockstep/checkpointing/snapshot/impl/save_plan.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/exit_code.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::snapshot {
namespace {

Content weights() {
  Content content;
  for (const char* name : {"a", "b", "c", "d"}) {
    content.add("model", name, at::ones({16}));
  }
  return content;
}

/// Every rank is told that update 2 is not saved; what was there before still is, and nothing else.
void expect_only_the_first(const TemporaryFolder& folder, const std::vector<RankOutcome>& ranks,
                           const ::testing::Matcher<std::string>& says) {
  for (const RankOutcome& rank : ranks) {
    EXPECT_EQ(rank.kind, RankOutcome::Kind::error);
    EXPECT_THAT(rank.message, AllOf(HasSubstr("step-000000000002"), says));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", step_folder(1)));
  EXPECT_NO_THROW(Snapshot(folder.file(step_folder(1))).verify());
}

TEST(Cover, RanksThatPlanDifferentFilesSaveNothing) {
  for (const int ranks : {2, 3}) {
    for (int odd = 0; odd < ranks; ++odd) {
      SCOPED_TRACE(std::to_string(odd) + " of " + std::to_string(ranks));
      const TemporaryFolder folder;
      run_ranks(ranks, [&](Communicator& own) { Writer(own, folder.path()).save(weights(), 1); });
      const auto result = outcomes(ranks, [&](Communicator& own) {
        Writer writer(own, folder.path(),
                      WriterOptions().min_shard_bytes(own.rank() == odd ? 1 : 4096));
        writer.save(weights(), 2);
      });
      expect_only_the_first(folder, result, HasSubstr("min_shard_bytes"));
    }
  }
}

TEST(Cover, AnAsynchronousSaveOfThemIsReportedOnEveryRank) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Communicator& own) {
    Writer writer(own, folder.path(), WriterOptions().min_shard_bytes(own.rank() == 0 ? 1 : 4096));
    writer.start(weights(), 2);
    const auto report = writer.wait();
    ASSERT_TRUE(report && report->error);
    EXPECT_THAT(*report->error, AllOf(HasSubstr("saving "), HasSubstr("min_shard_bytes")));
    EXPECT_EQ(report->code, ExitCode::snapshot);
  });
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

/// Saves a tensor of 12 elements of which each of two ranks has a slice.
std::vector<RankOutcome> save_slices(const TemporaryFolder& folder, int64_t begin, int64_t end,
                                     int64_t second_begin, int64_t second_end) {
  run_ranks(2, [&](Communicator& own) { Writer(own, folder.path()).save(weights(), 1); });
  return outcomes(2, [&](Communicator& own) {
    Content content = weights();
    const auto [from, to] =
        own.rank() == 0 ? std::pair(begin, end) : std::pair(second_begin, second_end);
    content.add_slice("optimizer", "moment", at::ones({to - from}), from, {3, 4});
    Writer(own, folder.path()).save(content, 2);
  });
}

TEST(Cover, SlicesThatLeaveElementsOutOrOverlapAreNotSaved) {
  const struct {
    int64_t begin, end, second_begin, second_end;
    const char* says;
  } cases[] = {
      {0, 6, 7, 12, "element 6"}, {0, 6, 6, 11, "element 11"}, {1, 6, 6, 12, "element 0"},
      {0, 7, 6, 12, "element 6"}, {0, 12, 0, 12, "element 0"},
  };
  for (const auto& one : cases) {
    const TemporaryFolder folder;
    const auto result = save_slices(folder, one.begin, one.end, one.second_begin, one.second_end);
    SCOPED_TRACE(one.says);
    expect_only_the_first(folder, result, AllOf(HasSubstr("\"moment\""), HasSubstr(one.says)));
  }
  const TemporaryFolder folder;
  for (const RankOutcome& rank : save_slices(folder, 0, 12, 12, 12)) {
    EXPECT_EQ(rank.kind, RankOutcome::Kind::returned) << rank.message;  // a rank may have none
  }
  EXPECT_NO_THROW(Snapshot(folder.file(step_folder(2))).verify());
}

TEST(Cover, ASlicedTensorOfOtherSizesOnARankIsNotSaved) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Communicator& own) { Writer(own, folder.path()).save(weights(), 1); });
  const auto result = outcomes(2, [&](Communicator& own) {
    Content content;
    const int64_t begin = 6 * own.rank();
    std::vector<int64_t> sizes =
        own.rank() == 0 ? std::vector<int64_t>{12} : std::vector<int64_t>{3, 4};
    content.add_slice("optimizer", "moment", at::ones({6}), begin, sizes);
    Writer(own, folder.path()).save(content, 2);
  });
  expect_only_the_first(folder, result, AllOf(HasSubstr("\"moment\""), HasSubstr("sizes")));
}

/// A snapshot in several files, whose manifest (or folder) somebody changes.
struct Divided {
  TemporaryFolder folder;
  std::string path = folder.file(step_folder(2));

  Divided() {
    run_ranks(3, [&](Communicator& own) {
      Writer writer(own, folder.path(), WriterOptions().min_shard_bytes(1));
      writer.save(sample_content(1, own.rank(), 3), 1);
      writer.save(sample_content(2, own.rank(), 3), 2);
    });
  }
  std::string file(const std::string& name) const { return path + "/" + name; }
  /// The file is gone, and nothing that is left names it; every digest is right.
  void forget(const std::string& name) const {
    Manifest manifest = Manifest::parse(MappedFile(file(kManifestName)).text(), "manifest");
    ASSERT_EQ(manifest.files.erase(name), 1U);
    std::filesystem::remove(file(name));
    std::ofstream(file(kManifestName), std::ios::trunc) << manifest.render();
    for (const auto& [index, text] : index_files(manifest.files)) {
      std::ofstream(file(index), std::ios::trunc) << text;
    }
  }
};

TEST(Cover, AReaderMissesAFileOfASetThatNothingNames) {
  for (int shard = 1; shard <= 3; ++shard) {
    const Divided divided;
    const std::string name = "model-0000" + std::to_string(shard) + "-of-00003.safetensors";
    divided.forget(name);
    EXPECT_THAT(rejection_of([&] { Snapshot{divided.path}; }), HasSubstr(divided.file(name)));
    EXPECT_THAT(rejection_of([&] { ModelFiles{divided.path}; }), HasSubstr(name));
    const Newest newest = find_newest(divided.folder.path(), Communicator::solo());
    ASSERT_TRUE(newest.snapshot);
    EXPECT_EQ(newest.snapshot->manifest().step, 1);
    EXPECT_THAT(newest.notes[0], HasSubstr(name));
  }
}

TEST(Cover, AReaderMissesTheSlicesOfARankThatNothingNames) {
  for (int rank = 0; rank < 3; ++rank) {
    const Divided divided;
    divided.forget("optimizer.slice-0000" + std::to_string(rank) + ".safetensors");
    EXPECT_THAT(rejection_of([&] { Snapshot(divided.path).verify(); }),
                AllOf(HasSubstr("\"layer.weight.exp_avg_sq\""), HasSubstr("element ")));
    EXPECT_EQ(find_newest(divided.folder.path(), Communicator::solo()).snapshot->manifest().step,
              1);
  }
}

TEST(Cover, AReaderRefusesATensorInTwoFiles) {
  const Divided divided;
  Manifest manifest = Manifest::parse(MappedFile(divided.file(kManifestName)).text(), "manifest");
  FileRecord again = manifest.files.at("model-00001-of-00003.safetensors");
  manifest.files["model.safetensors"] = again;
  std::filesystem::copy(divided.file("model-00001-of-00003.safetensors"),
                        divided.file("model.safetensors"));
  std::ofstream(divided.file(kManifestName), std::ios::trunc) << manifest.render();
  EXPECT_THAT(rejection_of([&] { Snapshot{divided.path}; }), HasSubstr("model.safetensors"));
}

TEST(Cover, AnIndexFromElsewhereHasToNameAllOfItsFiles) {
  const TemporaryFolder folder;
  for (const char* name : {"1", "2", "3"}) {
    save_safetensors(folder.file("model-0000" + std::string(name) + "-of-00003.safetensors"),
                     {{name, at::ones({2})}});
  }
  const std::string index = folder.file("model.safetensors.index.json");
  const auto write = [&](const std::string& map) {
    std::ofstream(index, std::ios::trunc) << "{\"weight_map\":{" << map << "}}";
  };
  const std::string two = R"("1":"model-00001-of-00003.safetensors",)"
                          R"("3":"model-00003-of-00003.safetensors")";
  write(two + R"(,"2":"model-00002-of-00003.safetensors")");
  EXPECT_THAT(ModelFiles(folder.path()).names(), ElementsAre("1", "2", "3"));
  write(two);
  EXPECT_THAT(rejection_of([&] { ModelFiles{folder.path()}; }),
              HasSubstr("model-00002-of-00003.safetensors"));
  write(two + R"(,"2":"model-00002-of-00003.safetensors")");
  std::filesystem::remove(folder.file("model-00002-of-00003.safetensors"));
  EXPECT_THAT(rejection_of([&] { ModelFiles{folder.path()}; }),
              HasSubstr("model-00002-of-00003.safetensors"));
  save_safetensors(folder.file("any-name"), {{"w", at::ones({2})}});
  save_safetensors(folder.file("part-2-of-9"), {{"v", at::ones({2})}});  // no name of a set
  write(R"("w":"any-name","v":"part-2-of-9")");
  EXPECT_THAT(ModelFiles(folder.path()).names(), ElementsAre("v", "w"));
}

}  // namespace
}  // namespace lockstep::snapshot
