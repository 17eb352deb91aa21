#pragma once

#include <time.h>

#include <algorithm>
#include <limits>

namespace lockstep::testing {

/// The least processor time of this thread that `body` took in five calls, in seconds. What other
/// programs do at the same time hardly changes it.
template <typename Body>
double least_time(const Body& body) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const double begin = now();
    body();
    least = std::min(least, now() - begin);
  }
  return least;
}

}  // namespace lockstep::testing
