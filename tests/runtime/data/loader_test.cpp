#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/loader.h>

#include <atomic>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "runtime/data_error.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Sample i is the number i.
struct Numbers {
  int64_t count = 0;
  int64_t size() const { return count; }
  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
};

std::vector<int64_t> values(const at::Tensor& batch) {
  const auto* data = batch.const_data_ptr<int64_t>();
  return {data, data + batch.numel()};
}

template <typename Dataset>
std::vector<std::vector<int64_t>> run(Loader<Dataset>& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (auto& batch : loader) {
    batches.push_back(values(batch));
  }
  return batches;
}

LoaderOptions shuffled(int64_t batch_size) {
  return LoaderOptions().batch_size(batch_size).shuffle(true);
}

TEST(Loader, GivesThisRanksBatchesOfTheSampler) {
  Loader<Numbers> loader({11}, 1, 2, 5, shuffled(2));
  DistributedSampler sampler(11, 1, 2, 5, true, 2);
  const auto batches = run(loader);
  ASSERT_EQ(batches.size(), static_cast<size_t>(sampler.batches()));
  for (int64_t i = 0; i < sampler.batches(); ++i) {
    const auto expected = sampler.batch({0, i});
    EXPECT_EQ(batches[i], std::vector<int64_t>(expected.begin(), expected.end()));
  }
}

TEST(Loader, EachLoopRunsTheNextEpochInANewOrder) {
  Loader<Numbers> loader({20}, 0, 1, 5, shuffled(4));
  EXPECT_EQ(loader.epoch(), 0);
  const auto first = run(loader);
  EXPECT_EQ(loader.epoch(), 1);
  const auto second = run(loader);
  EXPECT_NE(first, second);
  EXPECT_EQ(first.size(), 5U);
  EXPECT_EQ(second.size(), 5U);
  EXPECT_EQ(loader.batches_per_epoch(), 5);
}

TEST(Loader, OneLoopRunsAllEpochsAsked) {
  Loader<Numbers> apart({10}, 0, 2, 5, shuffled(2));
  auto expected = run(apart);
  const auto second = run(apart);
  expected.insert(expected.end(), second.begin(), second.end());
  Loader<Numbers> together({10}, 0, 2, 5, shuffled(2).epochs(2));
  EXPECT_EQ(run(together), expected);
}

TEST(Loader, IsTheSameWithAnyNumberOfWorkers) {
  Loader<Numbers> plain({103}, 1, 3, 5, shuffled(4).epochs(3));
  const auto expected = run(plain);
  for (const int workers : {1, 2, 5}) {
    Loader<Numbers> loader({103}, 1, 3, 5, shuffled(4).epochs(3).workers(workers));
    EXPECT_EQ(run(loader), expected) << workers << " workers";
  }
}

TEST(Loader, GoesOnFromASavedPosition) {
  for (const int workers : {0, 2}) {
    const auto options = shuffled(3).epochs(3).workers(workers);
    Loader<Numbers> whole({30}, 0, 2, 5, options);
    const auto expected = run(whole);
    Loader<Numbers> saved({30}, 0, 2, 5, options);
    std::vector<std::vector<int64_t>> found;
    for (auto& batch : saved) {
      found.push_back(values(batch));
      if (found.size() == 7) {
        break;
      }
    }
    EXPECT_EQ(saved.position(), (SamplerPosition{1, 2}));
    Loader<Numbers> resumed({30}, 0, 2, 5, options);
    resumed.seek(saved.position());
    EXPECT_EQ(resumed.epoch(), 1);
    for (auto& batch : resumed) {
      found.push_back(values(batch));
    }
    EXPECT_EQ(found, expected) << workers << " workers";
  }
}

TEST(Loader, ALoopAfterBreakGoesOnWithTheNextBatch) {
  Loader<Numbers> loader({12}, 0, 1, 5, LoaderOptions().batch_size(4).workers(2));
  for (auto& batch : loader) {
    EXPECT_EQ(values(batch).front(), 0);
    break;
  }
  EXPECT_EQ(run(loader), (std::vector<std::vector<int64_t>>{{4, 5, 6, 7}, {8, 9, 10, 11}}));
}

TEST(Loader, PositionIsTheBatchAfterTheOneInHand) {
  Loader<Numbers> loader({4}, 0, 1, 5, LoaderOptions().batch_size(2));
  std::vector<SamplerPosition> positions;
  std::vector<int64_t> epochs;
  for (auto& batch : loader) {
    (void)batch;
    positions.push_back(loader.position());
    epochs.push_back(loader.epoch());
  }
  EXPECT_EQ(positions, (std::vector<SamplerPosition>{{0, 1}, {1, 0}}));
  EXPECT_EQ(epochs, (std::vector<int64_t>{0, 0}));
}

TEST(Loader, TellsTheFirstBatchOfAnEpoch) {
  Loader<Numbers> loader({6}, 0, 1, 5, LoaderOptions().batch_size(2).epochs(2).workers(1));
  EXPECT_FALSE(loader.begins_epoch()) << "no batch yet";
  std::vector<bool> first;
  for (auto& batch : loader) {
    (void)batch;
    first.push_back(loader.begins_epoch());
  }
  EXPECT_EQ(first, (std::vector<bool>{true, false, false, true, false, false}));
  loader.seek({4, 1});
  for (auto& batch : loader) {
    (void)batch;
    EXPECT_EQ(loader.begins_epoch(), loader.position().batch == 1);
  }
}

struct Broken : Numbers {
  int64_t get(size_t index) const {
    if (index == 7) {
      throw std::runtime_error("cannot decode");
    }
    return Numbers::get(index);
  }
};

TEST(Loader, AFailingSampleSurfacesInTheLoopWithItsIndex) {
  for (const int workers : {0, 3}) {
    Loader<Broken> loader({{20}}, 1, 2, 5, LoaderOptions().batch_size(2).workers(workers));
    int batches = 0;
    const std::string message = data_error([&] {
      for (auto& batch : loader) {
        (void)batch;
        ++batches;
      }
    });
    EXPECT_THAT(message, AllOf(HasSubstr("rank 1"), HasSubstr("batch 1 of epoch 0"),
                               HasSubstr("sample 7"), HasSubstr("cannot decode")));
    EXPECT_EQ(batches, 1);
    EXPECT_EQ(loader.position(), (SamplerPosition{0, 1}));
  }
}

/// Counts get() calls; fails the loader that would load without being asked.
struct Counting : Numbers {
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  int64_t get(size_t index) const {
    ++*calls;
    return Numbers::get(index);
  }
};

TEST(Loader, WorkersLoadAheadButNotWithoutBound) {
  Counting dataset;
  dataset.count = 1000;
  const auto calls = dataset.calls;
  Loader<Counting> loader(dataset, 0, 1, 5, LoaderOptions().workers(2));
  auto iterator = loader.begin();
  while (*calls < 4) {
    std::this_thread::yield();  // loaded by workers, since this thread asked for one only
  }
  ++iterator;
  EXPECT_LE(*calls, 5);
}

/// Counts get() calls that found their dataset destroyed.
struct Fragile : Numbers {
  struct Shared {
    std::atomic<bool> waits{true};
    std::atomic<int> calls{0}, late{0};
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  std::shared_ptr<int> alive = std::make_shared<int>(1);
  int64_t get(size_t index) const {
    const std::weak_ptr<int> mine = alive;
    const std::shared_ptr<Shared> seen = shared;
    if (++seen->calls > 2) {
      while (seen->waits) {
        std::this_thread::yield();
      }
    }
    seen->late += mine.expired() ? 1 : 0;
    return Numbers::get(index);
  }
};

TEST(Loader, AssigningToALoaderWhoseLoopWasLeftKeepsItsDataForItsWorkers) {
  Fragile dataset;
  dataset.count = 100;
  const auto shared = dataset.shared;
  const LoaderOptions options = LoaderOptions().workers(2);
  Loader<Fragile> loader(std::move(dataset), 0, 1, 5, options);
  for (auto& batch : loader) {
    static_cast<void>(batch);
    break;
  }
  while (shared->calls < 4) {
    std::this_thread::yield();  // both workers are in get()
  }
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the fault needs it, not the test
    shared->waits = false;
  });
  Fragile next;
  next.count = 3;
  next.shared->waits = false;
  loader = Loader<Fragile>(std::move(next), 0, 1, 5, options);
  release.join();
  EXPECT_EQ(shared->late, 0);
}

TEST(Loader, ReadyBatchesOfTheDatasetAreTakenAsTheyAre) {
  struct Ready {
    size_t size() const { return 6; }
    std::string get_batch(const std::vector<size_t>& indices) const {
      return std::to_string(indices.front()) + "-" + std::to_string(indices.back());
    }
  };
  Loader<Ready> loader({}, 0, 1, 0, LoaderOptions().batch_size(3));
  std::vector<std::string> batches;
  for (auto& batch : loader) {
    batches.push_back(batch);
  }
  EXPECT_EQ(batches, (std::vector<std::string>{"0-2", "3-5"}));
}

TEST(Loader, CollatesPairsAndTuplesMemberByMember) {
  struct Mixed {
    size_t size() const { return 4; }
    std::tuple<at::Tensor, std::pair<int, double>> get(size_t index) const {
      return {at::full({2}, static_cast<int64_t>(index), at::kLong),
              {static_cast<int>(index), 0.5}};
    }
  };
  Loader<Mixed> loader({}, 0, 1, 0, LoaderOptions().batch_size(4));
  for (auto& [tensor, numbers] : loader) {
    EXPECT_TRUE(at::equal(tensor, at::tensor({0, 0, 1, 1, 2, 2, 3, 3}, at::kLong).view({4, 2})));
    EXPECT_TRUE(at::equal(numbers.first, at::tensor({0, 1, 2, 3}, at::kLong)));
    EXPECT_TRUE(at::equal(numbers.second, at::full({4}, 0.5F)));
  }
}

TEST(Loader, RefusesToStackDifferentShapesAndSaysBoth) {
  struct Ragged {
    size_t size() const { return 3; }
    at::Tensor get(size_t index) const { return at::ones({static_cast<int64_t>(index) + 1}); }
  };
  Loader<Ragged> loader({}, 0, 1, 0, LoaderOptions().batch_size(3));
  EXPECT_THAT(data_error([&] { loader.begin(); }), AllOf(HasSubstr("[1]"), HasSubstr("[2]")));
}

}  // namespace

namespace words {
struct Word {
  std::string text;
};
std::string collate(std::vector<Word> words) {
  std::string joined;
  for (const Word& word : words) {
    joined += word.text;
  }
  return joined;
}
struct Letter {
  char value;
};
}  // namespace words

namespace {

TEST(Loader, FindsTheCollateOfTheUsersType) {
  struct Words {
    size_t size() const { return 3; }
    words::Word get(size_t index) const { return {std::string(index + 1, 'a' + index)}; }
  };
  Loader<Words> loader({}, 0, 1, 0, LoaderOptions().batch_size(3));
  EXPECT_EQ(*loader.begin(), "abbccc");
}

TEST(Loader, OtherTypesStayAVector) {
  struct Letters {
    size_t size() const { return 2; }
    words::Letter get(size_t index) const { return {static_cast<char>('x' + index)}; }
  };
  Loader<Letters> loader({}, 0, 1, 0, LoaderOptions().batch_size(2));
  const std::vector<words::Letter>& batch = *loader.begin();
  EXPECT_EQ(batch[1].value, 'y');
}

TEST(Loader, RefusesADatasetWithoutSize) {
  struct Stream {
    std::optional<size_t> size() const { return std::nullopt; }
    int get(size_t) const { return 0; }
  };
  EXPECT_THROW(Loader<Stream>({}, 0, 1, 0), Error);
}

TEST(Loader, RefusesOptionsOutOfRangeByName) {
  const auto message = [](const LoaderOptions& options) -> std::string {
    try {
      Loader<Numbers> loader({10}, 0, 1, 0, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(LoaderOptions().batch_size(0)), HasSubstr("batch_size is 0"));
  EXPECT_THAT(message(LoaderOptions().workers(-1)), HasSubstr("workers is -1"));
  EXPECT_THAT(message(LoaderOptions().prefetch(-1)), HasSubstr("prefetch is -1"));
  EXPECT_THAT(message(LoaderOptions().epochs(0)), HasSubstr("epochs is 0"));
  EXPECT_EQ(message(LoaderOptions()), "accepted");
}

TEST(Loader, RefusesToSeekWhereNoBatchIs) {
  Loader<Numbers> loader({10}, 0, 1, 0, LoaderOptions().batch_size(5));
  EXPECT_THROW(loader.seek({0, 2}), Error);
  EXPECT_EQ(loader.position(), SamplerPosition());
}

TEST(Loader, AfterALoopThatWasLeftASeekGivesTheEpochOfTheNextBatch) {
  Loader<Numbers> loader({10}, 0, 1, 0, LoaderOptions().batch_size(5).epochs(3));
  for (auto& batch : loader) {
    static_cast<void>(batch);
    if (loader.epoch() == 2) {
      break;
    }
  }
  EXPECT_EQ(loader.epoch(), 2);
  loader.seek({0, 0});
  EXPECT_EQ(loader.epoch(), 0);
}

TEST(Loader, MeasuresTheTimeSpentWaiting) {
  struct Slow {
    size_t size() const { return 3; }
    int get(size_t) const {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return 0;
    }
  };
  Loader<Slow> loader({}, 0, 1, 0);
  for (auto& batch : loader) {
    (void)batch;
  }
  EXPECT_GE(loader.wait_seconds(), 0.015);
}

}  // namespace
}  // namespace lockstep
