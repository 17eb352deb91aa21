// Snapshots that were moved or damaged where no tensor is, and weights behind links.
#include "checkpointing/snapshot_rejected.h"
#include "checkpointing/snapshot_sample.h"
#include "collectives/thread_ranks.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"
#include "working_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/model_files.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep::snapshot {
namespace {

TEST(MovedSnapshot, ManifestOfAnotherStepThanItsFolderIsRefused) {
  const TemporaryFolder folder;
  Writer(Communicator::solo(), folder.path()).save(testing::sample_content(3, 0, 1), 3);
  FileSystem::real()->rename(folder.file(step_folder(3)), folder.file(step_folder(7)));
  EXPECT_THAT(rejection_of([&] { Snapshot{folder.file(step_folder(7))}; }),
              AllOf(HasSubstr("is of step 3"), HasSubstr("name of step 7")));
  const Newest newest = find_newest(folder.path(), Communicator::solo());
  EXPECT_FALSE(newest.snapshot.has_value());
  EXPECT_THAT(newest.notes, ElementsAre(HasSubstr("is of step 3")));
  FileSystem::real()->rename(folder.file(step_folder(7)), folder.file("best"));
  EXPECT_EQ(Snapshot(folder.file("best")).manifest().step, 3);
}

TEST(MovedSnapshot, DamagedIndexIsFound) {
  const TemporaryFolder folder;
  testing::run_ranks(2, [&](Communicator& ranks) {
    Writer writer(ranks, folder.path(), WriterOptions().min_shard_bytes(1));
    writer.save(testing::sample_content(1, ranks.rank(), 2), 1);
    writer.save(testing::sample_content(2, ranks.rank(), 2), 2);
  });
  const std::string index = folder.file(step_folder(2)) + "/model.safetensors.index.json";
  std::fstream file(index, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(40);
  file.put('~');
  file.close();
  const Newest newest = find_newest(folder.path(), Communicator::solo());
  EXPECT_EQ(newest.snapshot->manifest().step, 1);
  EXPECT_THAT(newest.notes[0],
              AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("damaged")));
  ASSERT_EQ(::unlink(index.c_str()), 0);
  EXPECT_EQ(find_newest(folder.path(), Communicator::solo()).snapshot->manifest().step, 1);
}

TEST(RelativeFolder, StaysWhereItWasWhenTheProgramGoesElsewhere) {
  const TemporaryFolder folder;
  const testing::WorkingDirectory start(folder.path());
  const auto options = [] { return WriterOptions().run("mine").keep(KeepOptions().last(1)); };
  Writer(Communicator::solo(), "run", options()).save(testing::sample_content(1, 0, 1), 1);
  const Snapshot first("run/../run//" + step_folder(1) + "/");
  Writer writer(Communicator::solo(), "./run/", options().loaded_from("run/" + step_folder(1)));
  Writer background(Communicator::solo(), "other/", options());
  {
    const testing::WorkingDirectory elsewhere(folder.file("elsewhere"));
    EXPECT_NO_THROW(first.verify());  // its files are opened now
    for (int64_t step = 2; step <= 3; ++step) {
      EXPECT_EQ(writer.save(testing::sample_content(step, 0, 1), step).path,
                folder.file("run/" + step_folder(step)));
      background.start(testing::sample_content(step, 0, 1), step);
      EXPECT_FALSE(background.wait()->error);
    }
    EXPECT_THAT(names_in("."), ::testing::IsEmpty());
  }
  EXPECT_TRUE(exists(folder.file("run/" + step_folder(1))));  // it was loaded from
  EXPECT_FALSE(exists(folder.file("run/" + step_folder(2))));
  EXPECT_NO_THROW(Snapshot(folder.file("other/" + step_folder(3))).verify());
}

/// A cache as huggingface_hub makes it: snapshots/REVISION has links to blobs.
struct Cache {
  TemporaryFolder folder;
  std::string revision = folder.file("models--me--net/snapshots/0123abc");

  Cache() {
    const auto disk = FileSystem::real();
    disk->make_folder(revision);
    disk->make_folder(folder.file("models--me--net/blobs"));
    save_safetensors(folder.file("models--me--net/blobs/f00d"), {{"w", at::ones({2})}});
    save_safetensors(folder.file("elsewhere"), {{"w", at::ones({2})}});
  }
  void link(const std::string& target, const std::string& name) const {
    ASSERT_EQ(::symlink(target.c_str(), (revision + "/" + name).c_str()), 0);
  }
};

TEST(LinkedWeights, OfAHuggingFaceCacheAreRead) {
  const Cache cache;
  cache.link("../../blobs/f00d", "model.safetensors");
  EXPECT_THAT(ModelFiles(cache.revision).names(), ElementsAre("w"));
  EXPECT_THAT(ModelFiles(cache.revision + "/model.safetensors").names(), ElementsAre("w"));
}

TEST(LinkedWeights, OfTheIndexOfAHuggingFaceCacheAreRead) {
  const Cache cache;
  cache.link("../../blobs/f00d", "model-00001-of-00001.safetensors");
  std::ofstream(cache.folder.file("models--me--net/blobs/1234"))
      << R"({"weight_map":{"w":"model-00001-of-00001.safetensors"}})";
  cache.link("../../blobs/1234", "model.safetensors.index.json");
  EXPECT_THAT(ModelFiles(cache.revision).names(), ElementsAre("w"));
}

TEST(LinkedWeights, ThatLeaveTheFolderAreRefusedUnlessTheUserNamesTheLink) {
  const Cache cache;
  cache.link("../../../elsewhere", "model.safetensors");
  EXPECT_THAT(rejection_of([&] { ModelFiles{cache.revision}; }),
              AllOf(HasSubstr("symbolic link"), HasSubstr("outside of")));
  EXPECT_THAT(ModelFiles(cache.revision + "/model.safetensors").names(), ElementsAre("w"));
}

TEST(IndexBomb, IsRefusedForItsSizeNumberOfValuesOrHeaders) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors.index.json");
  const auto refused = [&] { return rejection_of([&] { ModelFiles{path}; }); };
  std::ofstream(path) << std::string(size_t{33} << 20, ' ');
  EXPECT_THAT(refused(), HasSubstr("at most 33554432"));
  {
    std::ofstream index(path);
    index << R"({"weight_map":{)";
    for (int tensor = 0; tensor < 500'000; ++tensor) {
      index << (tensor == 0 ? "" : ",") << '"' << tensor << R"(":"a")";
    }
    index << "}}";
  }
  EXPECT_THAT(refused(), HasSubstr("more than 500000 values"));
  std::string map;
  for (const char* name : {"0", "1", "2", "3"}) {
    std::string header =
        c10::str("{\"", name, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
    header.resize(30'000'000, ' ');
    const uint64_t bytes = header.size();
    std::ofstream file(folder.file(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&bytes), sizeof bytes) << header;
    map += c10::str(map.empty() ? "" : ",", '"', name, "\":\"", name, '"');
  }
  std::ofstream(path) << R"({"weight_map":{)" << map << "}}";
  EXPECT_THAT(refused(), HasSubstr("more than 100000000 bytes together"));
}

}  // namespace
}  // namespace lockstep::snapshot
