#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/distributed_sampler.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "test_names.h"

namespace lockstep {
namespace {

std::vector<std::vector<size_t>> batches_of(DistributedSampler sampler, int64_t epoch) {
  std::vector<std::vector<size_t>> batches;
  for (SamplerPosition at{epoch, 0}; at.epoch == epoch; at = sampler.after(at)) {
    batches.push_back(sampler.batch(at));
  }
  return batches;
}

std::vector<size_t> samples_of(const DistributedSampler& sampler, int64_t epoch) {
  std::vector<size_t> samples;
  for (const auto& batch : batches_of(sampler, epoch)) {
    samples.insert(samples.end(), batch.begin(), batch.end());
  }
  return samples;
}

template <typename Make>
std::string error_of(Make make, ExitCode code) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

void expect_exact_cover(size_t size, int ranks, int64_t batch_size, int64_t epoch) {
  std::multiset<size_t> seen;
  std::set<size_t> batch_counts;
  for (int rank = 0; rank < ranks; ++rank) {
    const DistributedSampler sampler(size, rank, ranks, 7, true, batch_size);
    const auto batches = batches_of(sampler, epoch);
    batch_counts.insert(batches.size());
    for (const auto& batch : batches) {
      EXPECT_FALSE(batch.empty()) << "rank " << rank;
      EXPECT_LE(batch.size(), static_cast<size_t>(std::max<int64_t>(batch_size, 2)));
      seen.insert(batch.begin(), batch.end());
    }
    EXPECT_EQ(samples_of(sampler, epoch).size(), static_cast<size_t>(sampler.samples()));
  }
  EXPECT_EQ(batch_counts.size(), 1U) << "ranks have different numbers of batches";
  EXPECT_EQ(seen.size(), size);
  EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), size);
}

TEST(Sampler, EverySampleOnceAnEpochInEqualNumbersOfBatches) {
  for (const size_t size : {4, 5, 7, 9, 16, 17, 33, 100}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int64_t batch_size : {1, 2, 3, 4, 8, 200}) {
        SCOPED_TRACE(::testing::Message()
                     << size << " samples, " << ranks << " ranks, batch size " << batch_size);
        expect_exact_cover(size, ranks, batch_size, 0);
        expect_exact_cover(size, ranks, batch_size, 1);
      }
    }
  }
}

TEST(Sampler, OrderChangesWithEpochAndSeed) {
  const DistributedSampler sampler(100, 0, 2, 7);
  const DistributedSampler other_seed(100, 0, 2, 8);
  EXPECT_NE(samples_of(sampler, 0), samples_of(sampler, 1));
  EXPECT_NE(samples_of(sampler, 1), samples_of(sampler, 2));
  EXPECT_NE(samples_of(sampler, 0), samples_of(other_seed, 0));
  // Neighbouring (seed, epoch) pairs are different streams, too.
  EXPECT_NE(samples_of(sampler, 1), samples_of(other_seed, 0));
}

TEST(Sampler, OrderIsAPureFunctionOfSeedAndEpoch) {
  DistributedSampler forwards(50, 1, 2, 7);
  DistributedSampler back(50, 1, 2, 7);
  const auto late = back.batch({5, 3});
  EXPECT_EQ(samples_of(forwards, 0), samples_of(back, 0));
  forwards.batch({2, 0});
  EXPECT_EQ(forwards.batch({5, 3}), late);
}

// Pinned: a change of these numbers breaks the resume of every run that was saved before it.
TEST(Sampler, OrderIsTheSameOnEveryPlatform) {
  EXPECT_THAT(DistributedSampler::shuffled(8, 0, 0), ElementsAre(7, 4, 0, 1, 5, 2, 3, 6));
  EXPECT_THAT(DistributedSampler::shuffled(8, 1, 3), ElementsAre(4, 2, 5, 3, 1, 7, 0, 6));
}

TEST(Sampler, ShuffleIsUniform) {
  std::vector<int> first(5);
  for (int64_t epoch = 0; epoch < 5000; ++epoch) {
    ++first[DistributedSampler::shuffled(5, 3, epoch)[0]];
  }
  for (const int count : first) {
    EXPECT_NEAR(count, 1000, 130);  // 4.6 standard deviations
  }
}

TEST(Sampler, WithoutShuffleRanksInterleaveInDatasetOrder) {
  EXPECT_THAT(samples_of(DistributedSampler(7, 0, 3, 1, false, 2), 0), ElementsAre(0, 3, 6));
  EXPECT_THAT(samples_of(DistributedSampler(7, 1, 3, 1, false, 2), 4), ElementsAre(1, 4));
  EXPECT_THAT(samples_of(DistributedSampler(7, 2, 3, 1, false, 2), 4), ElementsAre(2, 5));
}

TEST(Sampler, ARankWithoutALastSampleMovesOneOver) {
  // 13 samples on 2 ranks: 7 and 6, in 3 batches of 3 each.
  EXPECT_THAT(batches_of(DistributedSampler(13, 0, 2, 1, false, 3), 0),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(6, 8, 10), ElementsAre(12)));
  EXPECT_THAT(batches_of(DistributedSampler(13, 1, 2, 1, false, 3), 0),
              ElementsAre(ElementsAre(1, 3, 5), ElementsAre(7, 9), ElementsAre(11)));
}

TEST(Sampler, BatchSizeOneGivesTheOddSampleToALastBatchOfTwo) {
  EXPECT_THAT(batches_of(DistributedSampler(5, 0, 2, 1, false), 0),
              ElementsAre(ElementsAre(0), ElementsAre(2, 4)));
  EXPECT_THAT(batches_of(DistributedSampler(5, 1, 2, 1, false), 0),
              ElementsAre(ElementsAre(1), ElementsAre(3)));
}

TEST(Sampler, DropLastKeepsFullBatchesOnly) {
  for (int rank = 0; rank < 3; ++rank) {
    const DistributedSampler sampler(31, rank, 3, 1, true, 4, true);
    EXPECT_EQ(sampler.batches(), 2);
    EXPECT_EQ(sampler.samples(), 8);
    for (const auto& batch : batches_of(sampler, 1)) {
      EXPECT_EQ(batch.size(), 4U);
    }
  }
}

TEST(Sampler, GoesOnFromASavedPosition) {
  DistributedSampler whole(40, 1, 3, 9, true, 4);
  SamplerPosition at{0, 0};
  std::vector<std::vector<size_t>> expected;
  SamplerPosition saved;
  for (int i = 0; i < 10; ++i) {
    if (i == 6) {
      saved = at;
    }
    if (i >= 6) {
      expected.push_back(whole.batch(at));
    }
    at = whole.after(at);
  }
  EXPECT_EQ(saved, (SamplerPosition{1, 2}));
  DistributedSampler resumed(40, 1, 3, 9, true, 4);
  for (const auto& batch : expected) {
    EXPECT_EQ(resumed.batch(saved), batch);
    saved = resumed.after(saved);
  }
}

/// The first `cut` batches of an epoch on `before` ranks, the rest of it on `after`, with another
/// batch size: every sample once, but for fewer than `after` at the end.
void expect_cover_across_worlds(size_t size, int before, int after, int64_t cut) {
  std::multiset<size_t> seen;
  SamplerPosition goes_on;
  int64_t taken = 0;
  for (int rank = 0; rank < before; ++rank) {
    DistributedSampler sampler(size, rank, before, 7, true, 3);
    SamplerPosition at;
    for (int64_t batch = 0; batch < cut; ++batch, at = sampler.after(at)) {
      const std::vector<size_t> samples = sampler.batch(at);
      seen.insert(samples.begin(), samples.end());
    }
    goes_on = DistributedSampler(size, 0, after, 7, true, 2).after_samples(0, sampler.taken(at));
    taken = sampler.taken(at);
  }
  EXPECT_EQ(taken, static_cast<int64_t>(seen.size()));
  for (int rank = 0; rank < after; ++rank) {
    DistributedSampler sampler(size, rank, after, 7, true, 2);
    for (SamplerPosition at = goes_on; at.epoch == 0; at = sampler.after(at)) {
      const std::vector<size_t> samples = sampler.batch(at);
      seen.insert(samples.begin(), samples.end());
    }
  }
  EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), seen.size()) << "a sample twice";
  EXPECT_GT(seen.size() + static_cast<size_t>(after), size) << "samples left out";
  EXPECT_TRUE(goes_on.epoch == 1 || seen.size() == size);
}

TEST(ResumedRuns, EpochGoesOnWithAnotherNumberOfRanksEachSampleOnce) {
  for (const int before : {1, 2, 3, 4, 8}) {
    for (const int after : {1, 2, 3, 4, 8}) {
      for (const size_t size : {43, 48, 49}) {
        const int64_t batches = DistributedSampler(size, 0, before, 7, true, 3).batches();
        for (int64_t cut = 1; cut < batches; ++cut) {
          SCOPED_TRACE(::testing::Message() << before << " ranks, then " << after << ", cut after "
                                            << cut << " of " << size << " samples");
          expect_cover_across_worlds(size, before, after, cut);
        }
      }
    }
  }
}

TEST(Sampler, RefusesMoreRanksThanSamplesWithBothNumbers) {
  EXPECT_THAT(error_of([] { DistributedSampler(3, 0, 4, 0); }, ExitCode::data),
              ::testing::AllOf(HasSubstr("3 samples"), HasSubstr("4 ranks")));
  EXPECT_THAT(error_of([] { DistributedSampler(0, 0, 1, 0); }, ExitCode::data),
              HasSubstr("0 samples"));
  EXPECT_THAT(error_of([] { DistributedSampler(15, 0, 2, 0, true, 8, true); }, ExitCode::data),
              ::testing::AllOf(HasSubstr("15 samples"), HasSubstr("batch of 8")));
}

TEST(Sampler, RefusesArgumentsOutOfRange) {
  EXPECT_THAT(error_of([] { DistributedSampler(9, 2, 2, 0); }, ExitCode::usage),
              HasSubstr("rank is 2 of 2"));
  EXPECT_THAT(error_of([] { DistributedSampler(9, -1, 2, 0); }, ExitCode::usage),
              HasSubstr("rank is -1"));
  EXPECT_THAT(error_of([] { DistributedSampler(9, 0, 2, 0, true, 0); }, ExitCode::usage),
              HasSubstr("batch_size is 0"));
}

TEST(Sampler, RefusesAPositionOfAnotherSampler) {
  DistributedSampler sampler(10, 0, 2, 0, true, 2);
  EXPECT_THAT(error_of(
                  [&] {
                    sampler.batch({0, 3});
                  },
                  ExitCode::usage),
              ::testing::AllOf(HasSubstr("no batch 3"), HasSubstr("has 3 batches")));
  EXPECT_THAT(error_of([&] { sampler.batch({-1, 0}); }, ExitCode::usage), HasSubstr("epoch -1"));
}

}  // namespace
}  // namespace lockstep
