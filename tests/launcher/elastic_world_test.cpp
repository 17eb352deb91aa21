// Where the next attempt of a job runs that may go on with fewer ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/restart_policy.h"
#include "start/elastic_world.h"

namespace lockstep::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Seconds = RestartPolicy::Seconds;

constexpr bool short_attempt = true;
constexpr bool long_attempt = false;

/// Four ranks on this host, of which two may go.
ElasticWorld local_world() {
  return {std::vector<Place>(4), 4, 2, [](const std::vector<std::string>&) {
            ADD_FAILURE() << "there is no host to ask";
            return std::map<std::string, std::string>();
          }};
}

TEST(ElasticWorld, LeavesOutTheRankThatFailsAgainAtOnce) {
  ElasticWorld world = local_world();
  EXPECT_EQ(world.after({{2, "here"}}, long_attempt).ranks, 4);
  const auto next = world.after({{2, "here"}}, short_attempt);
  EXPECT_EQ(next.ranks, 3);
  EXPECT_THAT(next.numbers, ElementsAre(0, 1, 3));
  EXPECT_EQ(next.news,
            "the job goes on with 3 ranks instead of 4: the place of rank 2 failed in two attempts "
            "in a row");
  // Rank 2 is now what was rank 3.
  world.after({{2, "here"}}, short_attempt);
  EXPECT_THAT(world.after({{2, "here"}}, short_attempt).numbers, ElementsAre(0, 1));
}

TEST(ElasticWorld, StaysWholeIfAnotherRankFailsEachTimeOrOnlyAfterLong) {
  ElasticWorld world = local_world();
  for (const int rank : {0, 1, 0, 1}) {
    EXPECT_EQ(world.after({{rank, "here"}}, short_attempt).news, "");
  }
  for (int attempt = 0; attempt < 5; ++attempt) {
    EXPECT_EQ(world.after({{3, "here"}}, long_attempt).news, "");
  }
}

TEST(ElasticWorld, StaysWholeIfAllRanksFailSinceTheProgramIsToBlame) {
  ElasticWorld world = local_world();
  for (int attempt = 0; attempt < 5; ++attempt) {
    EXPECT_EQ(world.after({{0, ""}, {1, ""}, {2, ""}, {3, ""}}, short_attempt).news, "");
  }
}

TEST(ElasticWorld, TriesAPlaceAgainAfterALongAttemptAndThenOnlyOnce) {
  ElasticWorld world = local_world();
  world.after({{1, "here"}}, short_attempt);
  EXPECT_EQ(world.after({{1, "here"}}, short_attempt).ranks, 3);
  const auto whole = world.after({{0, "here"}}, long_attempt);
  EXPECT_TRUE(whole.is_whole);
  EXPECT_EQ(whole.news,
            "the job goes on with 4 ranks instead of 3: the place of rank 1 is used again");
  EXPECT_THAT(world.after({{1, "here"}}, short_attempt).numbers, ElementsAre(0, 2, 3));
}

/// Two hosts of two ranks each; b calls itself node-b.
class WorldOfHosts : public ::testing::Test {
 protected:
  std::map<std::string, std::string> answers = {{"a", "a.cluster"}, {"10.0.0.2", "node-b"}};
  ElasticWorld world{
      {{"a", 2}, {"10.0.0.2", 2}}, 4, 2, [this](const std::vector<std::string>& asked) {
        EXPECT_THAT(asked, ElementsAre("a", "10.0.0.2"));
        return answers;
      }};
};

TEST_F(WorldOfHosts, LeavesOutAHostThatDoesNotAnswerUntilItAnswersAgain) {
  answers.erase("10.0.0.2");
  const auto next = world.after({{2, "node-b"}, {3, "node-b"}}, long_attempt);
  EXPECT_EQ(next.ranks, 2);
  EXPECT_EQ(list_of(next.places), "a:2");
  EXPECT_EQ(next.news, "the job goes on with 2 ranks instead of 4: host 10.0.0.2 does not answer");
  EXPECT_EQ(world.after({{0, "a"}}, long_attempt).news, "");
  answers["10.0.0.2"] = "node-b";
  const auto whole = world.after({{0, "a"}}, long_attempt);
  EXPECT_TRUE(whole.is_whole);
  EXPECT_EQ(whole.news, "the job goes on with 4 ranks instead of 2: host 10.0.0.2 is used again");
}

TEST_F(WorldOfHosts, LeavesOutAHostThatAnswersButWhoseRanksFailAgainAtOnce) {
  EXPECT_EQ(world.after({{3, "node-b"}}, long_attempt).news, "");
  const auto next = world.after({{2, "node-b"}}, short_attempt);
  EXPECT_EQ(list_of(next.places), "a:2");
  EXPECT_THAT(next.news, HasSubstr("host 10.0.0.2 failed in two attempts in a row"));
}

TEST_F(WorldOfHosts, KnowsAHostByItsShortName) {
  world.after({{0, "a"}}, short_attempt);
  EXPECT_EQ(list_of(world.after({{0, "a.cluster"}}, short_attempt).places), "10.0.0.2:2");
}

TEST_F(WorldOfHosts, ConcludesNothingIfNoHostAnswers) {
  answers.clear();
  EXPECT_EQ(world.after({{3, "node-b"}}, long_attempt).news, "");
}

TEST(ElasticWorldSize, IsThatOfTheSlotsThatAreLeft) {
  const auto without_b = [](int ranks) {
    ElasticWorld world({{"a", 4}, {"b", 2}}, ranks, 1, [](const std::vector<std::string>&) {
      return std::map<std::string, std::string>{{"a", "a"}};
    });
    return world.after({}, short_attempt).ranks;
  };
  EXPECT_EQ(without_b(6), 4);
  EXPECT_EQ(without_b(3), 3);
  EXPECT_EQ(without_b(12), 8) << "two ranks on each slot, as before";
}

TEST(ElasticWorldSize, BelowTheLeastIsSaid) {
  ElasticWorld world({{"a", 4}, {"b", 2}}, 6, 5, [](const std::vector<std::string>&) {
    return std::map<std::string, std::string>{{"a", "a"}};
  });
  const auto next = world.after({}, short_attempt);
  EXPECT_EQ(next.ranks, 4);
  EXPECT_EQ(next.news,
            "host b does not answer: only 4 ranks would have a place, fewer than --min-ranks 5");
}

TEST(Places, AreReadFromListsAndHostFiles) {
  EXPECT_EQ(list_of(places_in_list("a:4,b,a:2")), "a:6,b:1");
  EXPECT_EQ(list_of(places_in_file("# two hosts\na slots=4 max_slots=8\n\nb:2 # more\nc\n")),
            "a:4,b:2,c:1");
  EXPECT_THAT(counts_in("4(x2),2"), ElementsAre(4, 4, 2));
  RunOptions options;
  EXPECT_EQ(places_of(options, 3, {}).size(), 3U);
  EXPECT_EQ(list_of(places_of(options, 3, {{"n", 3}})), "n:3");
  options.hosts = "a:2,b:2";
  EXPECT_EQ(list_of(places_of(options, 3, {{"n", 3}})), "a:2,b:2");
}

TEST(Restarts, GoOnAfterTwoShortAttemptsIfTheNextHasOtherRanks) {
  RestartPolicy policy(9, Seconds(60));
  bool changes = false;
  const auto after_short = [&] {
    return policy.after(139, Seconds(1), false, [&](bool is_short) {
      EXPECT_TRUE(is_short);
      return changes;
    });
  };
  EXPECT_TRUE(after_short().restarts);
  changes = true;
  EXPECT_TRUE(after_short().restarts);
  changes = false;
  EXPECT_TRUE(after_short().restarts);
  EXPECT_FALSE(after_short().restarts);
  policy.after(2, Seconds(1), false, [](bool) {
    ADD_FAILURE() << "asked although there is no restart";
    return true;
  });
}

}  // namespace
}  // namespace lockstep::launcher
