#include "checkpointing/snapshot_fault_file_system.h"
#include "checkpointing/snapshot_rejected.h"
#include "checkpointing/snapshot_sample.h"
#include "collectives/thread_ranks.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/checkpointing/snapshot/impl/save_job.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/collectives/exceptions.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {
namespace {

std::vector<std::string> snapshots_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in(folder)) {
    if (step_of(name)) {
      names.push_back(std::to_string(*step_of(name)));
    }
  }
  return names;
}

Newest newest_in(const std::string& folder) {
  Communicator solo = Communicator::solo();
  return find_newest(folder, solo);
}

void save_alone(Writer& writer, int64_t step, std::optional<double> metric = std::nullopt) {
  writer.save(sample_content(step, 0, 1), step, metric);
}

TEST(SnapshotWriting, WrittenByFourRanksReadByAnyNumber) {
  const TemporaryFolder folder;
  run_ranks(4, [&](Communicator& ranks) {
    Writer writer(ranks, folder.path(), WriterOptions().min_shard_bytes(1));
    writer.save(sample_content(7, ranks.rank(), 4), 7);
  });
  for (const int readers : {1, 2, 3, 8}) {
    run_ranks(readers, [&](Communicator& ranks) {
      const Newest newest = find_newest(folder.path(), ranks);
      ASSERT_TRUE(newest.snapshot.has_value());
      EXPECT_THAT(newest.notes, IsEmpty());
      testing::expect_sample(*newest.snapshot, 4);
      const int64_t begin = 24 * ranks.rank() / readers;
      const int64_t end = 24 * (ranks.rank() + 1) / readers;
      EXPECT_TRUE(at::equal(newest.snapshot->section("optimizer")
                                .read_elements("layer.weight.exp_avg_sq", begin, end),
                            at::arange(begin, end, at::kFloat) + 7000));
      EXPECT_THAT(rejection_of([&] { newest.snapshot->read_own("random", 4, "cpu"); }),
                  HasSubstr("written by 4 ranks"));
    });
  }
}

TEST(SnapshotWriting, TensorsOfAllRanksAreWrittenOnceAndSpreadByBytes) {
  const TemporaryFolder folder;
  std::map<std::string, at::Tensor> weights;
  int64_t bytes = 0;
  for (int layer = 0; layer < 12; ++layer) {
    const at::Tensor weight = at::full({100 * (layer + 1)}, layer, at::kFloat);
    weights["layer" + std::to_string(layer)] = weight;
    bytes += static_cast<int64_t>(weight.nbytes());
  }
  run_ranks(3, [&](Communicator& ranks) {
    Content content;
    for (const auto& [name, weight] : weights) {
      content.add("model", name, weight);
    }
    Writer writer(ranks, folder.path(), WriterOptions().min_shard_bytes(1));
    writer.save(content, 1);
  });
  const Snapshot saved(folder.path() + "/" + step_folder(1));
  std::map<int, int64_t> written;
  for (const auto& [name, record] : saved.manifest().files) {
    const SafetensorsFile file(saved.path() + "/" + name);
    for (const StoredTensor& tensor : file.header().tensors) {
      written[record.rank] += static_cast<int64_t>(tensor.end - tensor.begin);
    }
  }
  ASSERT_EQ(written.size(), 3U);
  EXPECT_EQ(written[0] + written[1] + written[2], bytes);
  for (const auto& [rank, share] : written) {
    EXPECT_NEAR(static_cast<double>(share), bytes / 3.0, bytes * 0.02) << rank;
  }
  for (const auto& [name, weight] : weights) {
    EXPECT_TRUE(at::equal(saved.section("model").read(name), weight));
  }
}

/// Two tensors of one size, of which the second has a second name, and one of another dtype.
Content content_of(bool later, std::vector<std::string>* fetched = nullptr) {
  const auto values = [](int i) { return at::full({6, 4}, i, at::kFloat).t(); };
  const at::Tensor outline = at::empty({2, 6, 4}, at::TensorOptions().device(at::kMeta));
  Content content;
  content.text("config", "equal");
  for (const auto& [name, i] :
       std::vector<std::pair<std::string, int>>{{"a", 0}, {"b", 1}, {"tied", 1}}) {
    static const std::vector<at::Tensor> made = {values(0), values(1)};
    later ? content.add_later("model", name, outline[i].t())
          : content.add("model", name, made[static_cast<size_t>(i)]);
  }
  content.add("model", "here", at::arange(5));
  if (later) {
    content.fetch_by("model", [=](const Content::Take& take) {
      for (const auto& [name, i] :
           std::vector<std::pair<std::string, int>>{{"a", 0}, {"b", 1}, {"tied", 1}}) {
        at::Tensor passing = values(i).clone();
        take(name, passing);
        passing.fill_(-1);
        if (fetched != nullptr) {
          fetched->push_back(name);
        }
      }
    });
  }
  return content;
}

TEST(SnapshotWriting, TensorsWhoseValuesComeLaterMakeTheSameFiles) {
  for (const bool asynchronous : {false, true}) {
    std::map<std::string, std::string> manifests;
    for (const bool later : {false, true}) {
      const TemporaryFolder folder;
      run_ranks(3, [&](Communicator& ranks) {
        Writer writer(ranks, folder.path(), WriterOptions().min_shard_bytes(1).run("same"));
        std::vector<std::string> fetched;
        const Content content = content_of(later, &fetched);
        if (asynchronous) {
          writer.start(content, 1);
          writer.wait();
        } else {
          writer.save(content, 1);
        }
        EXPECT_EQ(fetched.size(), later ? 3U : 0U);  // once, on each rank
        EXPECT_TRUE(SaveJob::matches_complete(writer.folder(), content_of(later), 1));
      });
      std::ifstream file(folder.path() + "/" + step_folder(1) + "/" + kManifestName);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      manifests[text] = folder.path();
      EXPECT_THAT(text, HasSubstr("tied"));
    }
    EXPECT_EQ(manifests.size(), 1U);
  }
}

TEST(SnapshotWriting, RotationKeepsTheLastTheBestAndTheMultiples) {
  const TemporaryFolder folder;
  Writer plain(Communicator::solo(), folder.file("plain"), WriterOptions());
  std::vector<size_t> counts;
  for (int64_t step = 1; step <= 6; ++step) {
    save_alone(plain, step);
    counts.push_back(snapshots_in(folder.file("plain")).size());
  }
  EXPECT_THAT(counts, ElementsAre(1, 2, 3, 3, 3, 3));
  EXPECT_THAT(snapshots_in(folder.file("plain")), ElementsAre("4", "5", "6"));

  const KeepOptions keep = KeepOptions().last(1).best(1).every(4);
  Writer choosy(Communicator::solo(), folder.file("choosy"), WriterOptions().keep(keep));
  const double losses[] = {5, 1, 3, 4, 2, 6};
  for (int64_t step = 1; step <= 6; ++step) {
    save_alone(choosy, step, losses[step - 1]);
  }
  EXPECT_THAT(snapshots_in(folder.file("choosy")), ElementsAre("2", "4", "6"));
  EXPECT_THROW(Writer(Communicator::solo(), folder.file("none"),
                      WriterOptions().keep(KeepOptions().last(0))),
               Error);
}

TEST(Writer, AMetricThatComesLaterIsInTheManifestAndCountsInTheRotation) {
  const TemporaryFolder folder;
  const KeepOptions keep = KeepOptions().last(1).lower_is_better(false);
  run_ranks(2, [&](Communicator& ranks) {
    Writer writer(ranks, folder.path(), WriterOptions().keep(keep));
    const auto save = [&](int64_t step, double metric) {
      writer.save(sample_content(step, ranks.rank(), 2), step, metric);
    };
    save(1, 1.0);
    writer.folder().set_metric(1, 3.0);
    save(2, 2.0);
    save(3, 1.0);
  });
  EXPECT_THAT(snapshots_in(folder.path()), ElementsAre("1", "3"));
  const Snapshot first(folder.path() + "/" + step_folder(1));
  EXPECT_EQ(first.manifest().metric, 3.0);
  EXPECT_FALSE(first.manifest().lower_is_better);
  EXPECT_NO_THROW(first.verify());
}

TEST(Writer, AMetricThatCannotBeWrittenLeavesTheSnapshotAsItIs) {
  const TemporaryFolder folder;
  const auto disk = std::make_shared<FaultFileSystem>();
  Writer writer(Communicator::solo(), folder.path(), WriterOptions().files(disk));
  save_alone(writer, 1, 1.0);
  disk->fail_where(
      [](FaultFileSystem::Call call, const std::string& path) {
        return call == FaultFileSystem::Call::write &&
               path.find(kManifestName) != std::string::npos;
      },
      ENOSPC);
  EXPECT_THAT(rejection_of([&] { writer.folder().set_metric(1, 2.0); }),
              HasSubstr("saving the metric"));
  disk->heal();
  const Newest newest = newest_in(folder.path());
  ASSERT_TRUE(newest.snapshot);
  EXPECT_EQ(newest.snapshot->manifest().metric, 1.0);
}

TEST(Writer, AFurtherSnapshotOfAStepTakesThePlaceOfTheEarlier) {
  const TemporaryFolder folder;
  const auto disk = std::make_shared<FaultFileSystem>();
  const KeepOptions keep = KeepOptions().last(2).every(4).best(1);
  Writer writer(Communicator::solo(), folder.path(), WriterOptions().keep(keep).files(disk));
  const auto save = [&](const SnapshotId& id, double metric) {
    return writer.save(sample_content(id.step, 0, 1), id, metric);
  };
  for (const int64_t step : {2, 4, 5, 6, 7}) {
    EXPECT_EQ(writer.folder().next_of(step).number, 0);
    save(step, static_cast<double>(step));
    EXPECT_EQ(writer.folder().next_of(step).number, 1);
    save({step, 1}, step == 2 ? 10.0 : static_cast<double>(step));
  }
  const auto names = [&] {
    std::vector<std::string> all;
    for (const SnapshotId& id : ids_in(folder.path())) {
      all.push_back(c10::str(id.step, ".", id.number));
    }
    return all;
  };
  EXPECT_THAT(names(), ElementsAre("4.1", "6.1", "7.1")) << "2.0 had the best metric, 2.1 has not";
  EXPECT_THAT(rejection_of([&] { save({7, 1}, 1.0); }), HasSubstr("exists already"));

  disk->fail_where(
      [](FaultFileSystem::Call call, const std::string& path) {
        return call == FaultFileSystem::Call::rename && path.find(".tmp") == std::string::npos;
      },
      EBUSY);
  const SaveReport report = save({7, 2}, 1.0);
  EXPECT_THAT(report.warnings, ElementsAre(HasSubstr("an old snapshot was not removed")));
  disk->heal();
  ASSERT_THAT(names(), ElementsAre("4.1", "6.1", "7.1", "7.2"));
  EXPECT_EQ(newest_in(folder.path()).snapshot->path(), report.path);
  FileSystem::real()->remove_file(report.path + "/model.safetensors");
  EXPECT_EQ(newest_in(folder.path()).snapshot->path(), folder.file(step_folder({7, 1})));
  save(8, 8.0);
  EXPECT_THAT(names(), ElementsAre("4.1", "7.2", "8.0"));
}

TEST(Writer, NamesOfSnapshotsAreReadAsTheyAreWritten) {
  for (const SnapshotId& id : {SnapshotId(0), SnapshotId(3, 1), SnapshotId(1234567890123, 12)}) {
    const auto read = id_of(step_folder(id));
    ASSERT_TRUE(read);
    EXPECT_FALSE(*read < id || id < *read);
  }
  EXPECT_EQ(step_folder({1200, 2}), "step-000000001200.2");
  for (const char* other : {".", ".0", ".01", ".-1", ".+1", ". 1", ".1.aside", ".1.run.tmp", ".1.1",
                            ".1x", ".99999999999999999999"}) {
    EXPECT_FALSE(id_of(step_folder(1200) + other)) << other;
  }
}

TEST(SnapshotWriting, RotationSparesTheOneLoadedFromAndOtherRuns) {
  const TemporaryFolder folder;
  const auto options = [](const std::string& run) {
    return WriterOptions().run(run).keep(KeepOptions().last(1));
  };
  Writer other(Communicator::solo(), folder.path(), options("other"));
  save_alone(other, 1);
  Writer first(Communicator::solo(), folder.path(), options("mine"));
  save_alone(first, 2);
  Writer resumed(Communicator::solo(), folder.path(),
                 options("mine").loaded_from(folder.path() + "/./step-000000000002/"));
  for (int64_t step = 3; step <= 5; ++step) {
    save_alone(resumed, step);
  }
  EXPECT_THAT(snapshots_in(folder.path()), ElementsAre("1", "2", "5"));
}

TEST(SnapshotWriting, LowerStepThanBeforeIsNotTheOneRemoved) {
  const TemporaryFolder folder;
  const auto options = WriterOptions().run("again").keep(KeepOptions().last(1));
  Writer first(Communicator::solo(), folder.path(), options);
  save_alone(first, 50);
  Writer again(Communicator::solo(), folder.path(), options);
  save_alone(again, 10);
  EXPECT_THAT(snapshots_in(folder.path()), ElementsAre("10"));
}

TEST(SnapshotWriting, LeftoversAreIgnoredAndRemovedOnlyByTheirOwner) {
  const TemporaryFolder folder;
  const auto disk = FileSystem::real();
  for (const char* owner : {"mine", "other"}) {
    disk->make_folder(folder.file(temporary_name(step_folder(9), owner)));
    write_file(*disk, folder.file(temporary_name(step_folder(9), owner)) + "/model.safetensors",
               "?");
    write_file(*disk, folder.file(temporary_name("latest", owner)), "?");
  }
  EXPECT_FALSE(newest_in(folder.path()).snapshot.has_value());
  EXPECT_THAT(newest_in(folder.path()).notes, IsEmpty());
  const Writer writer(Communicator::solo(), folder.path(), WriterOptions().run("mine"));
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("latest.other.tmp", "lock", "step-000000000009.other.tmp"));
}

TEST(SnapshotWriting, LatestThatNamesNothingDoesNotMatter) {
  const TemporaryFolder folder;
  Writer writer(Communicator::solo(), folder.path());
  save_alone(writer, 1);
  save_alone(writer, 2);
  EXPECT_THAT(newest_in(folder.path()).notes, IsEmpty());
  for (const char* latest : {"step-000000000077\n", "../../etc\n", "", "\xff\xff"}) {
    std::ofstream(folder.file("latest"), std::ios::trunc) << latest;
    const Newest newest = newest_in(folder.path());
    ASSERT_TRUE(newest.snapshot.has_value());
    EXPECT_EQ(newest.snapshot->manifest().step, 2);
    EXPECT_EQ(newest.notes.size(), *latest == '\0' ? 0U : 1U);
  }
}

TEST(SnapshotWriting, TargetThatCannotBeWrittenIsFoundBeforeTraining) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("file")) << "x";
  for (const int ranks : {1, 2}) {
    const auto result =
        outcomes(ranks, [&](Communicator& own) { Writer(own, folder.file("file") + "/run"); });
    for (const auto& rank : result) {
      EXPECT_EQ(rank.kind, testing::RankOutcome::Kind::error);
      EXPECT_THAT(rank.message, AllOf(HasSubstr(": rank 0: "), HasSubstr("Not a directory")));
    }
  }
  for (const int reason : {EROFS, EACCES, ENOSPC}) {
    const auto disk = std::make_shared<FaultFileSystem>();
    disk->fail_where([](auto call, auto&) { return call == FaultFileSystem::Call::create; },
                     reason);
    const std::string message = rejection_of(
        [&] { Writer(Communicator::solo(), folder.file("run"), WriterOptions().files(disk)); });
    EXPECT_THAT(message, AllOf(HasSubstr(folder.file("run")), HasSubstr(std::strerror(reason))));
  }
}

TEST(SnapshotWriting, RenameAcrossFileSystemsIsFoundBeforeTraining) {
  const TemporaryFolder folder;
  const auto disk = std::make_shared<FaultFileSystem>();
  disk->fail_where([](auto call, auto&) { return call == FaultFileSystem::Call::rename; }, EXDEV);
  EXPECT_THAT(rejection_of([&] {
                Writer(Communicator::solo(), folder.file("run"), WriterOptions().files(disk));
              }),
              HasSubstr("Invalid cross-device link"));
}

TEST(SnapshotWriting, FinishedSnapshotIsNeverOverwritten) {
  const TemporaryFolder folder;
  Writer writer(Communicator::solo(), folder.path());
  save_alone(writer, 1);
  EXPECT_THAT(rejection_of([&] { save_alone(writer, 1); }), HasSubstr("exists already"));
  testing::expect_sample(Snapshot(folder.file(step_folder(1))), 1);
}

TEST(Writer, RanksThatWouldSaveDifferentThingsAreNamed) {
  const TemporaryFolder folder;
  const auto result = outcomes(3, [&](Communicator& ranks) {
    Content content;
    content.add("model", "first", at::ones({2}));
    content.add("model", "second", at::ones({ranks.rank() == 2 ? 3 : 2}));
    Writer writer(ranks, folder.path());
    writer.save(content, 1);
  });
  for (const auto& rank : result) {
    EXPECT_THAT(rank.message, AllOf(HasSubstr(": rank 2: "), HasSubstr("\"second\""),
                                    HasSubstr("[3], where rank 0"), HasSubstr("[2]")));
  }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(Writer, RanksThatNameDifferentRunsAreRefused) {
  const TemporaryFolder folder;
  for (const auto& rank : outcomes(2, [&](Communicator& ranks) {
         Writer(ranks, folder.path(), WriterOptions().run(ranks.rank() == 0 ? "a" : "b"));
       })) {
    EXPECT_THAT(rank.message, HasSubstr("rank 1 names the run \"b\", but rank 0 \"a\""));
  }
}

TEST(Writer, RankThatDoesNotSeeTheFolderIsNamed) {
  const TemporaryFolder folder;
  for (const auto& rank : outcomes(2, [&](Communicator& ranks) {
         Writer(ranks, folder.file(ranks.rank() == 0 ? "here" : "there"));
       })) {
    EXPECT_THAT(rank.message, AllOf(HasSubstr(": rank 1: "), HasSubstr("must share")));
  }
}

TEST(Writer, RunGetsOneNameWhenNoneIsGiven) {
  const TemporaryFolder folder;
  std::vector<std::string> runs(2);
  run_ranks(2, [&](Communicator& ranks) {
    runs[static_cast<size_t>(ranks.rank())] = Writer(ranks, folder.path()).folder().options().run();
  });
  EXPECT_FALSE(runs[0].empty());
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(Writer, BadArgumentsAreNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const WriterOptions& options) {
    return rejection_of([&] { Writer(Communicator::solo(), folder.path(), options); });
  };
  EXPECT_THAT(refused(WriterOptions().run("../x")), HasSubstr("run must be"));
  EXPECT_THAT(refused(WriterOptions().keep(KeepOptions().best(-1))),
              HasSubstr("KeepOptions.best must be >= 0, is -1"));
  EXPECT_THAT(refused(WriterOptions().keep(KeepOptions().every(-1))),
              HasSubstr("KeepOptions.every must be >= 0, is -1"));
  EXPECT_THAT(refused(WriterOptions().min_shard_bytes(0)), HasSubstr("min_shard_bytes"));
  Writer writer(Communicator::solo(), folder.path());
  EXPECT_THAT(rejection_of([&] { save_alone(writer, -1); }), HasSubstr("the step -1"));
  EXPECT_THAT(rejection_of([&] { save_alone(writer, 1, NAN); }), HasSubstr("metric is nan"));
  Content content;
  EXPECT_THROW(content.add("Model", "w", at::ones(1)), Error);
  EXPECT_THROW(content.add("", "w", at::ones(1)), Error);
  EXPECT_THROW(content.add("model", "w", at::Tensor()), Error);
  content.add("model", "w", at::ones(1));
  EXPECT_THROW(content.add("model", "w", at::ones(1)), Error);
  EXPECT_THROW(content.add_slice("model", "w", at::ones(1), 0, {1}), Error);
  EXPECT_THROW(content.add_slice("model", "v", at::ones(3), 2, {2, 2}), Error);
  EXPECT_THROW(content.text("a", "1").text("a", "2"), Error);
}

}  // namespace
}  // namespace lockstep::snapshot
