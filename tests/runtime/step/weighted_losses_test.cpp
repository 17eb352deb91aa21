// Samples drawn with weights: LoaderOptions::weights.
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/storage/impl/state_copy.h>

#include <map>
#include <numeric>

#include "error_of.h"
#include "runtime/across_ranks.h"

namespace lockstep {

using namespace detail;

namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::runtime;

/// Sample i is the number i.
struct Counting {
  size_t size_;
  size_t size() const { return size_; }
  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
};

DistributedSampler sampler(const std::vector<double>& weights, int rank = 0, int ranks = 1,
                           int64_t batch_size = 1) {
  return DistributedSampler(weights.size(), rank, ranks, /*seed=*/7, /*shuffle=*/false, batch_size,
                            /*drop_last=*/false, weights);
}

std::vector<size_t> epoch_of(DistributedSampler sampler, int64_t epoch) {
  std::vector<size_t> all;
  for (SamplerPosition at{epoch, 0}; at.epoch == epoch; at = sampler.after(at)) {
    const auto batch = sampler.batch(at);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(WeightedSampler, DrawsEachSampleAsOftenAsItsWeightSays) {
  std::vector<double> weights(1000, 0.0);
  weights[3] = 1.0;
  weights[500] = 2.5;
  weights[999] = 6.5;
  std::map<size_t, int> times;
  constexpr int epochs = 20;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const size_t index : epoch_of(sampler(weights), epoch)) {
      ++times[index];
    }
  }
  EXPECT_EQ(times.size(), 3U) << "a sample of weight 0 was drawn";
  EXPECT_NEAR(times[3] / (1000.0 * epochs), 0.10, 0.012);
  EXPECT_NEAR(times[500] / (1000.0 * epochs), 0.25, 0.018);
  EXPECT_NEAR(times[999] / (1000.0 * epochs), 0.65, 0.020);
}

TEST(WeightedSampler, OrderIsAPureFunctionOfWeightsSeedAndEpoch) {
  const std::vector<double> weights = {1, 2, 3, 4, 0, 6, 7, 8};
  EXPECT_EQ(epoch_of(sampler(weights), 3), epoch_of(sampler(weights), 3));
  EXPECT_NE(epoch_of(sampler(weights), 3), epoch_of(sampler(weights), 4));
  std::vector<double> twice = weights;
  for (double& weight : twice) {
    weight *= 2;
  }
  EXPECT_EQ(epoch_of(sampler(twice), 3), epoch_of(sampler(weights), 3));
}

TEST(WeightedSampler, RanksDivideThePositionsOfOneOrder) {
  std::vector<double> weights(23);
  std::iota(weights.begin(), weights.end(), 0.0);
  const std::vector<size_t> order = epoch_of(sampler(weights), 2);
  ASSERT_EQ(order.size(), 23U);
  for (const int ranks : {2, 3, 5}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto mine = epoch_of(sampler(weights, rank, ranks, 4), 2);
      for (size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(mine[i], order[static_cast<size_t>(rank) + i * static_cast<size_t>(ranks)]);
      }
    }
  }
}

TEST(WeightedSampler, RefusesWhatIsNoWeight) {
  const auto refusal = [](const std::vector<double>& weights) {
    return error_of([&] { DistributedSampler(3, 0, 1, 7, false, 1, false, weights); });
  };
  EXPECT_THAT(refusal({1, 2}), HasSubstr("2 weights, expected one for each of the 3 samples"));
  EXPECT_THAT(refusal({1, -1, 2}), HasSubstr("weight 1 is -1"));
  EXPECT_THAT(refusal({1, 2, std::nan("")}), HasSubstr("weight 2 is nan"));
  EXPECT_THAT(refusal({0, 0, 0}), HasSubstr("the weights sum to 0"));
  EXPECT_THAT(refusal({1e308, 1e308, 1e308}), HasSubstr("the weights sum to inf"));
  const at::Tensor matrix = at::ones({3, 1});
  EXPECT_THAT(
      error_of([&] { Loader<Counting>(Counting{3}, 0, 1, 7, LoaderOptions().weights(matrix)); }),
      HasSubstr("weights have the shape [3, 1], expected one for each of the 3 samples"));
}

std::vector<int64_t> numbers(const at::Tensor& batch) {
  return {batch.const_data_ptr<int64_t>(), batch.const_data_ptr<int64_t>() + batch.numel()};
}

LoaderOptions drawing(double heavy = 5.0) {
  at::Tensor weights = at::ones({40});
  weights[17] = heavy;
  return LoaderOptions().batch_size(3).weights(weights).epochs(4);
}

/// The rest of a loop in which `seen` batches were taken first.
std::vector<std::vector<int64_t>> rest_of(Loader<Counting>& loader) {
  std::vector<std::vector<int64_t>> rest;
  for (auto& batch : loader) {
    rest.push_back(numbers(batch));
  }
  return rest;
}

TEST(WeightedLoader, GoesOnFromASnapshotWithTheSamplesThatWouldHaveFollowed) {
  for (const int seen : {1, 5, 20}) {
    LoaderPlaces places;
    Loader<Counting> first(Counting{40}, 0, 2, 7, drawing(), &places);
    std::vector<std::vector<int64_t>> all;
    StateCopy copy;
    for (auto& batch : first) {
      all.push_back(numbers(batch));
      places.note_step();
      if (static_cast<int>(all.size()) == seen) {
        copy.take([&](StateArchive& archive) { places.visit_state(archive); });
      }
    }
    LoaderPlaces again;
    Loader<Counting> second(Counting{40}, 0, 2, 7, drawing(), &again);
    copy.give_back([&](StateArchive& archive) {
      again.check(archive);
      again.visit_state(archive);
    });
    all.erase(all.begin(), all.begin() + seen);
    EXPECT_EQ(rest_of(second), all) << seen;
  }
}

TEST(WeightedLoader, DoesNotGoOnWithOtherWeights) {
  LoaderPlaces places;
  Loader<Counting> first(Counting{40}, 0, 2, 7, drawing(), &places);
  StateCopy copy;
  copy.take([&](StateArchive& archive) { places.visit_state(archive); });
  const auto check = [&](LoaderPlaces& loaders) {
    copy.give_back([&](StateArchive& archive) { loaders.check(archive); });
  };
  LoaderPlaces again;
  Loader<Counting> second(Counting{40}, 0, 2, 7, drawing(6.0), &again);
  EXPECT_THAT(error_of([&] { check(again); }),
              HasSubstr("the snapshot's loader had other LoaderOptions::weights"));
  LoaderPlaces plain;
  Loader<Counting> third(Counting{40}, 0, 2, 7, LoaderOptions().batch_size(3), &plain);
  EXPECT_THAT(error_of([&] { check(plain); }), HasSubstr("this one has none"));
}

TEST(WeightedLoader, IsRefusedOnEveryRankWhereWeightsDiffer) {
  EXPECT_EQ(runtime().loader(Counting{40}, drawing()).batches_per_epoch(),
            (40 / runtime().size() + 3 - (40 % runtime().size() == 0 ? 1 : 0)) / 3);
  if (runtime().size() == 1) {
    return;
  }
  const double heavy = runtime().rank() == runtime().size() - 1 ? 6.0 : 5.0;
  EXPECT_THAT(error_of([&] { runtime().loader(Counting{40}, drawing(heavy)); }),
              HasSubstr("are not those of rank 0; pass the same weights on every rank"));
}

TEST(WeightedLoader, HasNoMeaningForOwnSamplesOrValidation) {
  EXPECT_THAT(error_of([&] { runtime().local_loader(Counting{40}, drawing()); }),
              HasSubstr("local_loader: weights"));
  EXPECT_THAT(error_of([&] { runtime().validation_loader(Counting{40}, drawing().epochs(1)); }),
              HasSubstr("epochs and weights have no meaning"));
}

}  // namespace
}  // namespace lockstep
