// Traces of steps, read as a viewer reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/step_trace.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct Event {
  std::string name;
  double begin;
  double end;
};
using Threads = std::map<std::pair<int, int>, std::vector<Event>>;  // (pid, tid)

Threads read_trace(const std::string& path) {
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file);
  Threads threads;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      threads[{event["pid"], event["tid"]}].push_back(
          {event["name"], event["ts"], event["ts"].get<double>() + event["dur"].get<double>()});
    } else {
      EXPECT_EQ(event["ph"], "M") << event;
      EXPECT_TRUE(event["args"]["name"].is_string()) << event;
    }
  }
  return threads;
}

const Event& the(const std::vector<Event>& events, const std::string& name) {
  const auto found = std::find_if(events.begin(), events.end(),
                                  [&](const Event& event) { return event.name == name; });
  EXPECT_NE(found, events.end()) << "no event " << name;
  return *found;
}

bool contains(const Event& outer, const Event& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

/// A bucket for each of the four parameters.
TrainerOptions small_buckets() {
  return TrainerOptions().buckets(BucketOptions().bucket_bytes(1).first_bucket_bytes(1));
}

TEST(StepTrace, HasThePartsOfAStepOfEveryRank) {
  const SharedFolder folder;
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.01), small_buckets());
  trainer.step([&] { return scaled_loss(*model, 0); });  // not recorded
  {
    StepTrace trace(runtime());
    trainer.step([&] { return scaled_loss(*model, 1); });
    trace.write(folder.file("step.json"));
  }
  meet();
  const Threads threads = read_trace(folder.file("step.json"));
  std::set<int> ranks;
  for (const auto& [thread, events] : threads) {
    ranks.insert(thread.first);
  }
  EXPECT_EQ(ranks.size(), static_cast<size_t>(runtime().size()));
  for (int rank = 0; rank < runtime().size(); ++rank) {
    const std::vector<Event>& step = threads.at({rank, 0});
    const Event& forward = the(step, "forward");
    const Event& backward = the(step, "backward");
    const Event& update = the(step, "update");
    EXPECT_GE(forward.begin, 0.0);
    EXPECT_LE(forward.end, backward.begin);
    EXPECT_LE(backward.end, update.begin);
    EXPECT_LE(the(step, "wait for votes").end, update.begin);
    EXPECT_EQ(std::count_if(step.begin(), step.end(),
                            [](const Event& event) { return event.name == "forward"; }),
              1);
    for (int bucket = 0; bucket < 4; ++bucket) {
      const std::string name = "bucket " + std::to_string(bucket);
      const Event& launch = the(step, "launch " + name);
      const Event& wait = the(step, "wait for " + name);
      EXPECT_TRUE(contains(backward, launch)) << name;
      EXPECT_LE(backward.end, wait.begin) << name;
      const Event& reduce = the(threads.at({rank, bucket + 1}), "all-reduce of " + name);
      EXPECT_EQ(reduce.begin, launch.begin);
      EXPECT_NEAR(reduce.end, wait.end, 1e-3);
    }
  }
}

TEST(StepTrace, BucketsSayHowLargeTheyAre) {
  const SharedFolder folder;
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.01),
                  small_buckets().precision(Precision::O0().wire(at::kHalf)));
  {
    StepTrace trace(runtime());
    trainer.step([&] { return scaled_loss(*model, 0); });
    trace.write(folder.file("step.json"));
  }
  meet();
  int64_t bytes = 0;
  std::ifstream file(folder.file("step.json"));
  const nlohmann::json trace = nlohmann::json::parse(file);
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"].get<std::string>().rfind("launch bucket ", 0) == 0) {
      EXPECT_EQ(event["args"]["element_bytes"], 2);
      bytes += event["pid"] == 0 ? event["args"]["bytes"].get<int64_t>() : 0;
    }
  }
  EXPECT_EQ(bytes, trainer.memory().gradients);
}

TEST(StepTrace, EventsOfAThreadAreNested) {
  const SharedFolder folder;
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.01), small_buckets().accumulate(2));
  {
    StepTrace trace(runtime());
    for (int64_t step = 0; step < 6; ++step) {
      trainer.step([&] { return scaled_loss(*model, step); });
    }
    trace.write(folder.file("step.json"));
  }
  meet();
  for (const auto& [thread, events] : read_trace(folder.file("step.json"))) {
    for (const Event& one : events) {
      EXPECT_LE(one.begin, one.end);
      for (const Event& other : events) {
        const bool apart = one.end <= other.begin || other.end <= one.begin;
        EXPECT_TRUE(apart || contains(one, other) || contains(other, one))
            << one.name << " and " << other.name;
      }
    }
  }
}

TEST(StepTrace, NothingIsRecordedAfterwardsAndTheResultHasTheSameBits) {
  const SharedFolder folder;
  std::vector<at::Tensor> results;
  for (const bool traced : {false, true}) {
    at::manual_seed(5);
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, SGD(0.01));
    std::optional<StepTrace> trace;
    if (traced) {
      trace.emplace(runtime());
    }
    trainer.step([&] { return scaled_loss(*model, 0); });
    if (traced) {
      trace->write(folder.file("one.json"));
    }
    trainer.step([&] { return scaled_loss(*model, 1); });
    if (traced) {
      trace->write(folder.file("two.json"));
    }
    results.push_back(testing::flat_masters(trainer));
  }
  meet();
  EXPECT_TRUE(at::equal(results[0], results[1]));
  std::ifstream one(folder.file("one.json")), two(folder.file("two.json"));
  EXPECT_EQ(nlohmann::json::parse(one), nlohmann::json::parse(two));
}

TEST(StepTrace, ASecondOneAndAFileThatCannotBeWrittenAreErrors) {
  StepTrace trace(runtime());
  EXPECT_THAT(error_of([] { const StepTrace second(runtime()); }), HasSubstr("recording already"));
  EXPECT_THAT(error_of([&] { trace.write("/proc/no/such.json"); }),
              AllOf(HasSubstr("rank 0"), HasSubstr("/proc/no/such.json: cannot be written")));
}

}  // namespace
}  // namespace lockstep
