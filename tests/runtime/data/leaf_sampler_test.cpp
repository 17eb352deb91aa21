// Samples that are dealt to leaves: the same for each leaf on any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/data/impl/loader_places.h>
#include <lockstep/runtime/storage/impl/state_copy.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"

namespace lockstep {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using Leaf = std::pair<int64_t, int64_t>;  // update, leaf

DistributedSampler sampler_of(int64_t size, int rank, int ranks, int64_t leaves, int64_t batch_size,
                              bool drop_last = false) {
  return {static_cast<size_t>(size), rank, ranks, 7, true, batch_size, drop_last, {}, leaves};
}

/// What each leaf of an epoch gets.
std::map<Leaf, std::vector<size_t>> dealt(int64_t size, int ranks, int64_t leaves,
                                          int64_t batch_size, bool drop_last) {
  std::map<Leaf, std::vector<size_t>> found;
  for (int rank = 0; rank < ranks; ++rank) {
    DistributedSampler sampler = sampler_of(size, rank, ranks, leaves, batch_size, drop_last);
    const int64_t own = leaves / ranks;
    int64_t samples = 0;
    for (SamplerPosition at{2, 0}; at.epoch == 2; at = sampler.after(at)) {
      auto& batch = found[{at.batch / own, rank * own + at.batch % own}];
      batch = sampler.batch(at);
      samples += static_cast<int64_t>(batch.size());
    }
    EXPECT_EQ(samples, sampler.samples());
  }
  return found;
}

TEST(LeafSampler, DealsTheSameSamplesOnAnyNumberOfRanks) {
  for (const int64_t batch_size : {1, 2, 5}) {
    for (const int64_t size : {24, 25, 49, 61, 100, 131}) {
      for (const bool drop_last : {false, true}) {
        if (drop_last && size < 24 * batch_size) {
          continue;
        }
        const auto expected = dealt(size, 1, 24, batch_size, drop_last);
        for (const int ranks : {2, 3, 4, 6, 8, 12, 24}) {
          EXPECT_EQ(dealt(size, ranks, 24, batch_size, drop_last), expected)
              << size << " samples in leaves of " << batch_size << " on " << ranks;
        }
      }
    }
  }
}

TEST(LeafSampler, UsesEachSampleOnceAndLeavesNoLeafEmpty) {
  for (const int64_t size : {24, 25, 49, 61, 100}) {
    std::multiset<size_t> seen;
    for (const auto& [leaf, batch] : dealt(size, 4, 24, 2, false)) {
      EXPECT_FALSE(batch.empty()) << "leaf " << leaf.second << " of update " << leaf.first;
      seen.insert(batch.begin(), batch.end());
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(size));
    EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST(LeafSampler, AResumedEpochGoesOnWithTheNextUpdateOnAnyNumberOfRanks) {
  for (const int64_t update : {0, 1, 2}) {
    LoaderPlaces places;
    const auto place = std::make_shared<LoaderPlace>(sampler_of(61, 0, 3, 12, 2));
    places.add(place);
    place->seek({5, update * 4});
    detail::StateCopy saved;
    saved.take([&](StateArchive& archive) { places.visit_state(archive); });
    for (const int ranks : {1, 2, 4, 12}) {
      LoaderPlaces others;
      const auto other = std::make_shared<LoaderPlace>(sampler_of(61, 0, ranks, 12, 2));
      others.add(other);
      saved.give_back([&](StateArchive& archive) { others.visit_state(archive); });
      EXPECT_EQ(other->next(), (SamplerPosition{5, update * 12 / ranks})) << ranks << " ranks";
    }
  }
}

TEST(LeafSampler, RefusesWhatCannotBeShared) {
  EXPECT_THAT(error_of([] { sampler_of(100, 0, 5, 24, 1); }),
              HasSubstr("24 leaves cannot be shared equally by 5 ranks"));
  EXPECT_THAT(error_of([] { sampler_of(23, 0, 2, 24, 1); }), HasSubstr("23 samples for 24 leaves"));
  EXPECT_THAT(error_of([] { sampler_of(47, 0, 2, 24, 2, true); }),
              HasSubstr("fewer than one batch of 2 for each of 24 leaves"));
}

}  // namespace
}  // namespace lockstep
