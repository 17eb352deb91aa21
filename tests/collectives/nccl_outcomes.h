#pragma once

#include "nccl_ranks.h"

#include <string>
#include <thread>
#include <vector>

namespace lockstep::testing {

using namespace detail;

inline at::Tensor ones(int64_t numel = 4) {
  return on_fake_device(at::ones({numel}));
}

/// Calls until the transport throws, as a training loop does.
[[noreturn]] inline void go_on_until_it_throws(Communicator& nccl) {
  while (true) {
    nccl.progress();
    std::this_thread::yield();
  }
}

inline void expect_all(const std::vector<RankOutcome>& result, RankOutcome::Kind kind,
                       const std::string& text) {
  for (size_t k = 0; k < result.size(); ++k) {
    EXPECT_EQ(result[k].kind, kind) << "rank " << k << ": " << result[k].message;
    EXPECT_NE(result[k].message.find(text), std::string::npos)
        << "rank " << k << ": " << result[k].message;
  }
}

}  // namespace lockstep::testing
