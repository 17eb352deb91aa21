// All ranks or none: one Error on every rank, with the exit code of the first rank that failed.
#include <gmock/gmock.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/outcome.h>

#include <new>

#include "thread_ranks.h"

namespace lockstep {

using namespace detail;

namespace {

using ::testing::ElementsAre;
using testing::outcomes;
using testing::RankOutcome;
using testing::run_ranks;

constexpr ExitCode every_code[] = {
    ExitCode::usage,      ExitCode::environment,   ExitCode::data,
    ExitCode::snapshot,   ExitCode::peer_lost,     ExitCode::diverged,
    ExitCode::non_finite, ExitCode::out_of_memory, ExitCode::preempted};

/// Runs `body` on 1, 2 and 3 ranks. Each must throw this.
void expect_everywhere(const std::string& text, ExitCode code,
                       const std::function<void(Communicator&)>& body) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](Communicator& ranks) {
      try {
        body(ranks);
        ADD_FAILURE() << "rank " << ranks.rank() << " threw nothing";
      } catch (const Error& error) {
        const std::string last = std::to_string(ranks.size() - 1);
        std::string expected = text;
        expected.replace(expected.find("LAST"), 4, last);
        EXPECT_EQ(error.what(), expected);
        EXPECT_EQ(error.code(), code);
      }
    });
  }
}

bool is_last(const Communicator& ranks) {
  return ranks.rank() == ranks.size() - 1;
}

std::optional<Error> of_the_last(const Communicator& ranks, ExitCode code) {
  return is_last(ranks) ? std::make_optional<Error>("no disk", code) : std::nullopt;
}

TEST(Agreement, EachExitCodeComesOutOfEachWayToFail) {
  for (const ExitCode code : every_code) {
    const auto fail = [code](const Communicator& ranks) {
      if (is_last(ranks)) {
        throw Error("no disk", code);
      }
    };
    expect_everywhere("rank LAST: no disk", code,
                      [&](Communicator& ranks) { Agreement(ranks).attempt([&] { fail(ranks); }); });
    expect_everywhere("saving: rank LAST: no disk", code, [&](Communicator& ranks) {
      Agreement(ranks).attempt("saving", [&] { fail(ranks); });
    });
    expect_everywhere("saving: rank LAST: no disk", code, [&](Communicator& ranks) {
      Agreement(ranks).gather("saving", [&] {
        fail(ranks);
        return "a text";
      });
    });
    expect_everywhere("rank LAST: no disk", code, [&](Communicator& ranks) {
      Agreement(ranks).raise_if_any(of_the_last(ranks, code));
    });
    expect_everywhere("rank LAST: no disk", code, [&](Communicator& ranks) {
      Agreement(ranks).raise(of_the_last(ranks, code));
    });
    expect_everywhere("rank LAST: no disk", code, [&](Communicator& ranks) {
      const Agreement agreement(ranks);
      if (const auto mine = of_the_last(ranks, code)) {
        agreement.raise(*mine, std::make_exception_ptr(*mine));
      }
      agreement.raise(std::nullopt);
    });
    expect_everywhere("rank LAST: no disk", code, [&](Communicator& ranks) {
      const Agreement agreement(ranks);
      const Outcome mine = agreement.outcome_of([&] {
        fail(ranks);
        return "";
      });
      throw Error(failure_in(agreement.exchange(mine)).value_or(Error("none", ExitCode::ok)));
    });
  }
}

TEST(Agreement, AnExceptionWithoutACodeHasThatOfTheAgreement) {
  const auto fail = [](const Communicator& ranks) {
    if (is_last(ranks)) {
      throw std::out_of_range("nothing there");
    }
  };
  for (const ExitCode code : {ExitCode::usage, ExitCode::snapshot}) {
    expect_everywhere("rank LAST: nothing there", code, [&](Communicator& ranks) {
      Agreement(ranks, code).attempt([&] { fail(ranks); });
    });
  }
  for (const ExitCode code : every_code) {
    const ExitCode expected = code == ExitCode::usage ? ExitCode::snapshot : code;
    expect_everywhere("rank LAST: no disk", expected, [&](Communicator& ranks) {
      Agreement(ranks, ExitCode::snapshot).attempt([&] {
        if (is_last(ranks)) {
          throw Error("no disk", code);
        }
      });
    });
  }
  expect_everywhere("rank LAST: std::bad_alloc", ExitCode::out_of_memory, [](Communicator& ranks) {
    Agreement(ranks, ExitCode::snapshot).attempt([&] {
      if (is_last(ranks)) {
        throw std::bad_alloc();
      }
    });
  });
}

TEST(Agreement, TheCodeIsThatOfTheFirstRankThatFailedAndAllAreQuoted) {
  run_ranks(3, [](Communicator& ranks) {
    const int rank = ranks.rank();
    const Agreement agreement(ranks);
    try {
      if (rank == 0) {
        agreement.raise(std::nullopt);
      }
      const Error mine(rank == 1 ? "" : "no disk",
                       rank == 1 ? ExitCode::data : ExitCode::out_of_memory);
      agreement.raise(mine, std::make_exception_ptr(mine));
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 1: no message; rank 2: no disk");
      EXPECT_EQ(error.code(), ExitCode::data);
    }
  });
}

TEST(Agreement, ItGoesOnWhereNoRankFailed) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [](Communicator& ranks) {
      const Agreement agreement(ranks);
      agreement.attempt([] {});
      agreement.raise_if_any(std::nullopt);
      std::vector<std::string> expected(static_cast<size_t>(ranks.size()));
      EXPECT_EQ(agreement.gather("nothing", [] { return ""; }), expected);
      expected.back() = std::string("-\n+\0.", 5);  // any bytes
      EXPECT_EQ(agreement.gather("telling", [&] { return is_last(ranks) ? expected.back() : ""; }),
                expected);
      EXPECT_TRUE(agreement.any(is_last(ranks)));
      EXPECT_FALSE(agreement.any(false));
      EXPECT_EQ(agreement.communicator().size(), ranks.size());
    });
  }
}

TEST(Agreement, TheCauseIsNestedWhereItWasThrown) {
  run_ranks(2, [](Communicator& ranks) {
    try {
      if (ranks.rank() == 0) {
        Agreement(ranks).raise(std::nullopt);
      }
      Agreement(ranks).raise(Error("why"), std::make_exception_ptr(std::out_of_range("why")));
    } catch (const Error& error) {
      bool nested = false;
      try {
        std::rethrow_if_nested(error);
      } catch (const std::out_of_range&) {
        nested = true;
      }
      EXPECT_EQ(nested, ranks.rank() == 1);
    }
  });
}

TEST(Agreement, AFailureThatNoRankKnowsOfIsAnErrorAllTheSame) {
  run_ranks(2,
            [](Communicator& ranks) { EXPECT_THROW(Agreement(ranks).raise(std::nullopt), Error); });
}

TEST(Agreement, ALostPeerIsNotToldToTheOthers) {
  const auto ranks = outcomes(1, [](Communicator& own) {
    Agreement(own).attempt([] { throw CommunicationError("gone"); });
  });
  EXPECT_EQ(ranks[0].kind, RankOutcome::Kind::communication_error);
  EXPECT_EQ(ranks[0].message, "gone");
}

TEST(Agreement, SaysWhetherARankFailedItself) {
  run_ranks(3, [](Communicator& ranks) {
    const Agreement agreement(ranks);
    const auto mine = ranks.rank() != 1 ? std::make_optional<Error>("no disk") : std::nullopt;
    const std::vector<std::function<void()>> ways = {
        [&] { agreement.attempt([&] { mine ? throw Error(*mine) : void(); }); },
        [&] { agreement.raise_if_any(mine); },
        [&] { agreement.raise(mine); },
    };
    for (const auto& fail : ways) {
      try {
        fail();
        ADD_FAILURE() << "rank " << ranks.rank() << " threw nothing";
      } catch (const SharedError& error) {
        EXPECT_EQ(error.is_own(), ranks.rank() != 1);
        EXPECT_STREQ(error.what(), "ranks 0, 2: no disk");
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
