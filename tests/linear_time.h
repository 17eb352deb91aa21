#pragma once

#include <time.h>

#include <algorithm>
#include <limits>

namespace lockstep::testing {

/// Whether `twice`, which does what `once` does with double the data, takes at most 3 times the
/// processor time of this thread; what is quadratic takes 4 times. The best times of each count, of
/// at least five in turn, and of more until they hold: other programs only make single times worse.
template <typename Once, typename Twice>
bool is_linear(const Once& once, const Twice& twice) {
  const auto time_of = [](const auto& body) {
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    body();
    return now() - begin;
  };
  double least = std::numeric_limits<double>::infinity();
  double least_of_twice = least;
  for (int round = 1; round <= 60; ++round) {
    least = std::min(least, time_of(once));
    least_of_twice = std::min(least_of_twice, time_of(twice));
    if (round >= 5 && least_of_twice <= 3 * least) {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::testing
