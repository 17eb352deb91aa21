// Batches that are prepared ahead of the loop.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/trainer.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "runtime/data_error.h"
#include "runtime/models.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

/// Sample i is i and a random number.
struct Drawn {
  int64_t count = 0;
  int64_t size() const { return count; }
  std::pair<int64_t, at::Tensor> get(size_t index) const {
    return {static_cast<int64_t>(index), at::rand({2})};
  }
};

using Batches = std::vector<std::pair<at::Tensor, at::Tensor>>;

template <typename Dataset>
Batches run(Loader<Dataset>& loader, size_t most = 1000) {
  Batches batches;
  for (auto& batch : loader) {
    batches.push_back(batch);
    if (batches.size() == most) {
      break;
    }
  }
  return batches;
}

void expect_same(const Batches& found, const Batches& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i].first, expected[i].first)) << i;
    EXPECT_TRUE(at::equal(found[i].second, expected[i].second)) << i;
  }
}

LoaderOptions shuffled() {
  return LoaderOptions().batch_size(4).shuffle(true).epochs(3);
}

TEST(Prefetch, KeepsOrderAndBits) {
  Loader<Drawn> plain({50}, 1, 3, 5, shuffled());
  const Batches expected = run(plain);
  for (const int depth : {1, 2, 7, 1000}) {
    for (const int workers : {0, 3}) {
      Loader<Drawn> loader({50}, 1, 3, 5, shuffled().prefetch(depth).workers(workers));
      expect_same(run(loader), expected);
    }
  }
}

TEST(Prefetch, CountsOnlyTheBatchesThatTheLoopGot) {
  Loader<Drawn> plain({50}, 0, 2, 5, shuffled());
  const Batches expected = run(plain);
  for (size_t got = 1; got < expected.size(); got += 4) {
    Loader<Drawn> first({50}, 0, 2, 5, shuffled().prefetch(5));
    Loader<Drawn> reference({50}, 0, 2, 5, shuffled());
    Batches found = run(first, got);
    run(reference, got);
    EXPECT_EQ(first.position(), reference.position());
    EXPECT_EQ(first.epoch(), reference.epoch());
    Loader<Drawn> resumed({50}, 0, 2, 5, shuffled().prefetch(2));
    resumed.seek(first.position());
    for (const auto& batch : run(resumed)) {
      found.push_back(batch);
    }
    expect_same(found, expected);
  }
}

/// The number of get() calls, and how many of them have ended.
struct Counts {
  std::atomic<int> calls{0};
  std::atomic<std::thread::id> main{std::this_thread::get_id()};
  std::atomic<int> on_main{0};
};
struct Counted : Drawn {
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
  std::pair<int64_t, at::Tensor> get(size_t index) const {
    ++counts->calls;
    counts->on_main += std::this_thread::get_id() == counts->main.load() ? 1 : 0;
    return Drawn::get(index);
  }
};

TEST(Prefetch, LoadsOffTheLoopsThreadAndNoFurtherAheadThanAsked) {
  for (const int depth : {1, 3}) {
    Counted dataset;
    dataset.count = 1000;
    Loader<Counted> loader(dataset, 0, 1, 5, LoaderOptions().prefetch(depth));
    auto iterator = loader.begin();
    for (int step = 0; step < 5; ++step) {
      while (dataset.counts->calls < step + 1 + depth) {
        std::this_thread::yield();  // loaded although this thread asks for no more
      }
      EXPECT_EQ(dataset.counts->calls, step + 1 + depth);
      ++iterator;
    }
    EXPECT_EQ(dataset.counts->on_main, 0);
  }
}

TEST(Prefetch, ALoopThatIsLeftEarlyWaitsForNoBatch) {
  Counted dataset;
  dataset.count = 1000;
  {
    Loader<Counted> loader(dataset, 0, 1, 5, LoaderOptions().prefetch(500).workers(2));
    loader.begin();
  }
  const int calls = dataset.counts->calls;
  EXPECT_LE(calls, 501);
  Loader<Counted> never(dataset, 0, 1, 5, LoaderOptions().prefetch(3));
  EXPECT_EQ(dataset.counts->calls, calls);
}

/// Fails the first time that sample 7 is asked for.
struct FailsOnce : Drawn {
  std::shared_ptr<std::atomic<bool>> failed = std::make_shared<std::atomic<bool>>(false);
  std::pair<int64_t, at::Tensor> get(size_t index) const {
    if (index == 7 && !failed->exchange(true)) {
      throw std::runtime_error("cannot decode");
    }
    return Drawn::get(index);
  }
};

TEST(Prefetch, AnExceptionComesInTurnWithItsExitCodeAndTheBatchIsAskedForAgain) {
  for (const auto& options :
       {LoaderOptions(), LoaderOptions().prefetch(4), LoaderOptions().workers(3)}) {
    FailsOnce dataset;
    dataset.count = 20;
    Loader<FailsOnce> loader(dataset, 0, 1, 5, LoaderOptions(options).batch_size(2));
    Batches found;
    const std::string message = data_error([&] {
      for (auto& batch : loader) {
        found.push_back(batch);
      }
    });
    EXPECT_THAT(message, AllOf(HasSubstr("rank 0"), HasSubstr("batch 3 of epoch 0"),
                               HasSubstr("sample 7"), HasSubstr("cannot decode")));
    EXPECT_EQ(loader.position(), (SamplerPosition{0, 3}));
    for (const auto& batch : run(loader)) {
      found.push_back(batch);
    }
    ASSERT_EQ(found.size(), 10U);
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_TRUE(at::equal(found[i].first, at::arange(2 * i, 2 * i + 2))) << i;
    }
  }
}

TEST(Prefetch, TheSameIteratorCanAskAgainAfterAnException) {
  for (const auto& options : {LoaderOptions(), LoaderOptions().prefetch(4)}) {
    FailsOnce dataset;
    dataset.count = 9;
    Loader<FailsOnce> loader(dataset, 0, 1, 5, LoaderOptions(options).batch_size(1));
    std::vector<int64_t> found;
    int failures = 0;
    auto iterator = loader.begin();
    while (iterator != loader.end()) {
      found.push_back((*iterator).first.item<int64_t>());
      try {
        ++iterator;
      } catch (const Error&) {
        ++failures;
        ++iterator;
      }
    }
    std::vector<int64_t> expected(9);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(failures, 1);
  }
}

TEST(Prefetch, MemoryThatRunsOutKeepsItsExitCode) {
  struct NoMemory {
    size_t size() const { return 4; }
    int get(size_t) const { throw std::bad_alloc(); }
  };
  Loader<NoMemory> loader({}, 0, 1, 5, LoaderOptions().prefetch(2));
  try {
    loader.begin();
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  }
}

TEST(Prefetch, AValidationLoaderUsesIt) {
  Counted dataset;
  dataset.count = 11;
  const ValidationLoader<Counted> loader(dataset, 0, 1, 5,
                                         LoaderOptions().batch_size(2).prefetch(3));
  std::vector<size_t> seen;
  loader.for_each([&](auto&, const std::vector<size_t>& indices) {
    seen.insert(seen.end(), indices.begin(), indices.end());
  });
  std::vector<size_t> expected(11);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(dataset.counts->on_main, 0);
}

struct Rows {
  int64_t size() const { return 12; }
  std::pair<at::Tensor, at::Tensor> get(size_t) const { return {at::rand({4}), at::rand({2})}; }
};

TEST(DataWait, IsInTheReportOfEachStep) {
  Runtime runtime = testing::solo_runtime();
  for (const int64_t accumulate : {1, 2}) {
    const auto model = std::make_shared<testing::Mlp>();
    Trainer trainer(runtime, model, SGD(0.1), TrainerOptions().accumulate(accumulate));
    auto loader = runtime.loader(Rows(), LoaderOptions().batch_size(2));
    auto other = runtime.loader(Rows(), LoaderOptions().batch_size(6));
    double reported = 0.0;
    for (auto& batch : loader) {
      const auto [x, y] = trainer.to_device(batch);
      const StepReport report = trainer.step([&, x = x, y = y] { return model->loss(x, y); });
      EXPECT_GT(report.data_wait_seconds(), 0.0);
      EXPECT_GT(report.data_wait_share(), 0.0);
      EXPECT_LT(report.data_wait_share(), 1.0);
      if (report.closes_update()) {
        reported += report.data_wait_seconds();
      }
      for (auto& seen : other) {  // as a validation does
        (void)seen;
      }
    }
    EXPECT_NEAR(reported, loader.wait_seconds(), 1e-9) << accumulate;
    const at::Tensor x = trainer.to_device(at::rand({2, 4}));
    const at::Tensor y = trainer.to_device(at::rand({2, 2}));
    EXPECT_EQ(trainer.step([&] { return model->loss(x, y); }).data_wait_seconds(), 0.0);
  }
}

}  // namespace
}  // namespace lockstep
