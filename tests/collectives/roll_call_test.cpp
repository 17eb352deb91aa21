// What ranks that wait for each other say of those that have not arrived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/core/roll_call.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <utility>

#include "test_names.h"

namespace lockstep::detail {
namespace {

class RollCalls : public ::testing::Test {
 protected:
  RollCalls() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~RollCalls() override { std::filesystem::remove_all(folder_); }

  RollCallPlace place(int rank, int size = 3) const {
    return {folder_, "job.1", rank, size, rank, size};
  }
  /// A rank that has arrived and says nothing by itself.
  static std::unique_ptr<RollCall> arrived(const RollCallPlace& place,
                                           const std::string& point = "start") {
    return std::make_unique<RollCall>(place, point, std::chrono::hours(1),
                                      [](const std::string& text) { ADD_FAILURE() << text; });
  }
  std::string folder_ = "/tmp/lockstep_test_XXXXXX";
};

TEST_F(RollCalls, NameTheMissingRankOnceForAll) {
  const auto first = arrived(place(0));
  EXPECT_EQ(first->report(), "ranks 1-2 have not arrived (rank 0 has)");
  const auto second = arrived(place(1));
  EXPECT_EQ(first->report(), "rank 2 has not arrived (ranks 0-1 have)");
  EXPECT_EQ(second->report(), "");
  const auto third = arrived(place(2));
  EXPECT_EQ(first->report(), "");
}

TEST_F(RollCalls, OfOtherPointsAndJobsAndOfDeadProcessesDoNotCount) {
  const auto first = arrived(place(0));
  const auto at_the_end = arrived(place(1), "end");
  RollCallPlace other = place(1);
  other.job = "job.2";
  const auto elsewhere = arrived(other);
  auto dead = mark_of(getpid()).value();
  dead.start += 1;  // this number was another process's
  std::ofstream(folder_ + "/lockstep_" + to_text(dead) + "-start-job.1-2-2") << "";
  EXPECT_EQ(first->report(), "ranks 1-2 have not arrived (rank 0 has)");
}

TEST_F(RollCalls, CountProcessesThatCannotBeSeenFromHere) {
  const auto first = arrived(place(0));
  auto elsewhere = mark_of(getpid()).value();
  elsewhere.name_space += 1;
  elsewhere.process = 999999999;
  std::ofstream(folder_ + "/lockstep_" + to_text(elsewhere) + "-start-job.1-2-2") << "";
  EXPECT_EQ(first->report(), "rank 1 has not arrived (ranks 0, 2 have)");
}

TEST_F(RollCalls, FollowNoLinkThatSomebodyHasLaid) {
  const std::string victim = folder_ + "/victim";
  std::filesystem::create_symlink(victim, folder_ + "/lockstep_" + own_mark() + "-start-job.1-0-0");
  const auto first = arrived(place(0));
  EXPECT_FALSE(std::filesystem::exists(victim));
}

TEST_F(RollCalls, KnowOnlyTheRanksOfTheirNode) {
  RollCallPlace here = {folder_, "job.1", 2, 4, 0, 2};
  const auto first = arrived(here);
  EXPECT_EQ(first->report(), "on this node, local rank 1 has not arrived (rank 2 has)");
  here.rank = 3;
  here.local_rank = 1;
  const auto second = arrived(here);
  EXPECT_EQ(first->report(),
            "all ranks of this node have arrived (ranks 2-3): a rank of another node has not");
}

TEST_F(RollCalls, SayHowToFindOutWhereTheJobHasNoName) {
  RollCallPlace nameless = place(0);
  nameless.job.clear();
  EXPECT_THAT(arrived(nameless)->report(), HasSubstr("start the program with `lockstep run`"));
  nameless.rank = 1;
  EXPECT_EQ(arrived(nameless)->report(), "");
}

TEST_F(RollCalls, AreMadeWhileRanksWaitAndLeaveNothing) {
  std::promise<std::string> said;
  {
    bool is_first = true;
    const RollCall call(place(0), "end", std::chrono::milliseconds(1),
                        [&](const std::string& text) {
                          if (std::exchange(is_first, false)) {
                            said.set_value(text);
                          }
                        });
    EXPECT_THAT(said.get_future().get(),
                AllOf(HasSubstr("rank 0 has waited "), HasSubstr(" s for the end of all ranks: "),
                      HasSubstr("ranks 1-2 have not arrived (rank 0 has)")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace lockstep::detail
