// What ranks say of a rank that does not come.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/core/call_mismatch.h>
#include <lockstep/collectives/core/rank_sign.h>
#include <lockstep/collectives/impl/activity.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "test_names.h"
#include "thread_ranks.h"

namespace lockstep {
namespace {

using detail::ActivitySlot;
using detail::note_activity;

CommunicatorOptions impatient() {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(2);  // also of the opening barrier
  return options;
}

void wait_until(const std::function<bool()>& condition) {
  while (!condition()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Verdict, SaysWhatTheLateRankIsDoing) {
  std::atomic<bool> over{false};
  const auto result = outcomes(
      2,
      [&](Communicator& ranks) {
        ranks.barrier().wait();
        if (ranks.rank() == 1) {
          note_activity("forward of micro-batch", 2);
          wait_until([&] { return over.load(); });
          return;
        }
        try {
          const detail::CallLabel label("bucket", 4);
          ranks.all_reduce(at::zeros({42})).wait();
        } catch (...) {
          over = true;
          throw;
        }
      },
      impatient());
  const std::string line = result[0].message.substr(0, result[0].message.find('\n'));
  EXPECT_THAT(line,
              MatchesRegex("rank 0 of 2: all_reduce #2 of Float\\[42\\], sum \\(bucket 4\\) "
                           "timed out after [0-9.]+ s: rank 1 did not arrive \\(its last call "
                           "was #1\\); in forward of micro-batch 2 for [0-9.]+ s"));
}

TEST(Verdict, NamesTheLateRankAndNotTheNeighbourThatGaveUpFirst) {
  std::atomic<int> over{0};
  const auto result = outcomes(
      3,
      [&](Communicator& ranks) {
        ranks.barrier().wait();
        // Rank 2 never comes, rank 0 gives up, and only then does rank 1 look.
        wait_until([&] { return over >= ranks.rank(); });
        if (ranks.rank() == 2) {
          return;
        }
        try {
          ranks.all_reduce(at::zeros({42})).wait();
        } catch (...) {
          ++over;
          throw;
        }
      },
      impatient());
  const std::string line = result[1].message.substr(0, result[1].message.find('\n'));
  EXPECT_THAT(line,
              AllOf(HasSubstr("rank 2 did not arrive"), Not(HasSubstr("rank 0 has died or left"))));
}

TEST(Verdict, IsTheFirstCauseThatARankGaveWhenItLeft) {
  detail::PeerTrouble trouble;
  trouble.rank = 1;
  trouble.size = 3;
  trouble.seconds = 0.25;
  trouble.some_are_gone = true;
  trouble.late = {{0, 7, true, false, 0.0, "", "rank 2 did not arrive"}};
  detail::CollectiveCall call{detail::Verb::barrier};
  call.sequence = 8;
  EXPECT_THAT(describe_trouble(trouble, call, {}),
              StartsWith("rank 1 of 3: barrier #8 failed after 0.2 s: rank 2 did not arrive (found "
                         "by rank 0, which has left)\n"));
  trouble.some_are_gone = false;
  trouble.late.clear();
  trouble.silent = {2};
  EXPECT_THAT(describe_trouble(trouble, call, {}),
              StartsWith("rank 1 of 3: barrier #8 timed out after 0.2 s: all ranks of this node "
                         "have arrived; rank 2, which is on another node, gave no sign of life"));
}

TEST(Verdict, NamesACallOnAnotherCommunicator) {
  std::vector<Communicator> others = Communicator::threads(2);
  const auto slot = std::make_shared<ActivitySlot>();
  const auto result = outcomes(
      2,
      [&](Communicator& ranks) {
        ranks.barrier().wait();
        if (ranks.rank() == 0) {
          wait_until([&] { return slot->text().rfind("a wait for", 0) == 0; });
          const Communicator ended = std::exchange(others[0], Communicator::solo());
          ranks.all_reduce(at::zeros({42})).wait();
        } else {
          show_activity_in(std::make_shared<ActivitySlot>());  // that is gone at once
          show_activity_in(slot);
          others[1].barrier().wait();
        }
      },
      impatient());
  EXPECT_THAT(result[0].message,
              HasSubstr("; in a wait for barrier #1 on another communicator for "));
  EXPECT_THAT(result[1].message, HasSubstr("rank 0 has died or left"));
}

TEST(ActivitySlot, ShowsTheRankOfItsThreadAndWhatItWaitedForLast) {
  const auto slot = std::make_shared<ActivitySlot>();
  note_activity("forward of micro-batch", 0);
  show_activity_in(slot);
  EXPECT_EQ(slot->text(), "forward of micro-batch 0");
  const double since = slot->since();
  {
    const auto own = std::make_shared<ActivitySlot>();
    const detail::WaitingNote note("a wait", own);
    EXPECT_EQ(slot->text(), "a wait on another communicator");
    EXPECT_EQ(own->text(), "a wait");
  }
  EXPECT_EQ(slot->text(), "forward of micro-batch 0");
  EXPECT_EQ(slot->since(), since);
  std::thread([] { note_activity("work of another rank", 1); }).join();
  EXPECT_EQ(slot->text(), "forward of micro-batch 0");
}

TEST(ActivitySlot, CutsALongTextBetweenWords) {
  const size_t limit = ActivitySlot::kBytes - 1;
  ActivitySlot slot = {};
  for (size_t letters = 1; letters <= 2 * limit; ++letters) {
    const std::string text = std::string(letters, 'w') + " on another communicator";
    slot.write(text, 0.0);
    const std::string shown = slot.text();
    EXPECT_LE(shown.size(), limit);
    if (text.size() <= limit) {
      EXPECT_EQ(shown, text);
    } else {
      EXPECT_THAT(shown, letters + 4 <= limit ? MatchesRegex("w+( on)?( another)? \\.\\.\\.")
                                              : MatchesRegex("w+\\.\\.\\."));
    }
  }
}

TEST(RankSign, TravelsAsText) {
  const detail::RankSign waits{3, 811, false, true, 41.5, "forward of micro-batch 2", ""};
  const detail::RankSign unknown{4, 0, true, false, 0.0, "", ""};
  const auto signs = detail::parse_signs(detail::render_signs({waits, unknown}));
  ASSERT_EQ(signs.size(), 2U);
  EXPECT_EQ(describe_sign(signs[0]),
            "rank 3 did not arrive (its last call was #811); in forward of micro-batch 2 for 41.5 "
            "s; stopped by a signal or a debugger");
  EXPECT_EQ(describe_sign(signs[1]), "rank 4 has died or left (its last call was #0)");
  EXPECT_TRUE(detail::parse_signs("nonsense").empty());
}

}  // namespace
}  // namespace lockstep
