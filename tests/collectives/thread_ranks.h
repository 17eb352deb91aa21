#pragma once

#include <gtest/gtest.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::testing {

/// What the body of one rank ended with.
struct RankOutcome {
  enum class Kind { returned, error, communication_error, other };
  Kind kind = Kind::returned;
  std::string message;
  ExitCode code = ExitCode::ok;
};

/// Runs `body` on `size` ranks that are threads. Each rank's communicator dies when its body ends.
inline std::vector<RankOutcome> outcomes(int size, const std::function<void(Communicator&)>& body,
                                         CommunicatorOptions options = {}) {
  std::vector<Communicator> ranks = Communicator::threads(size, options);
  std::vector<RankOutcome> result(ranks.size());
  std::vector<std::thread> threads;
  for (size_t k = 0; k < ranks.size(); ++k) {
    threads.emplace_back([&result, &body, k, rank = std::move(ranks[k])]() mutable {
      using Kind = RankOutcome::Kind;
      try {
        const Communicator own = std::move(rank);
        Communicator copy = own;
        body(copy);
      } catch (const CommunicationError& error) {
        result[k] = {Kind::communication_error, error.what()};
      } catch (const Error& error) {
        result[k] = {Kind::error, error.what(), error.code()};
      } catch (const std::exception& error) {
        result[k] = {Kind::other, error.what()};
      }
    });
  }
  ranks.clear();
  for (std::thread& thread : threads) {
    thread.join();
  }
  return result;
}

/// The same for bodies that must not throw.
inline void run_ranks(int size, const std::function<void(Communicator&)>& body,
                      CommunicatorOptions options = {}) {
  const std::vector<RankOutcome> result = outcomes(size, body, options);
  for (size_t k = 0; k < result.size(); ++k) {
    EXPECT_EQ(result[k].kind, RankOutcome::Kind::returned)
        << "rank " << k << ": " << result[k].message;
  }
}

}  // namespace lockstep::testing
