// cores FIRST SECOND: what the machine gives these two cores at this moment, in a few milliseconds:
// how long a cache line takes from one to the other, and how fast each computes while both do. A
// virtual machine's cores move between the host's, and share them with others. Prints {"line_ns":
// n, "rates": [r, r]}; a rate is 10^9 multiply-adds per second.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
}

double nanoseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

/// Both threads call it, `side` 0 and 1. The median of 20 series, so that a switch of threads does
/// not count.
class Line {
 public:
  double pass(int side) {
    constexpr int kPasses = 200;
    int turn = side;
    std::array<double, 20> series{};
    for (double& one : series) {
      const auto begin = Clock::now();
      for (int i = 0; i < kPasses; ++i) {
        while (turns_.load(std::memory_order_acquire) != turn) {
        }
        turns_.store(turn + 1, std::memory_order_release);
        turn += 2;
      }
      one = nanoseconds_since(begin) / (2 * kPasses);
    }
    std::nth_element(series.begin(), series.begin() + series.size() / 2, series.end());
    return series[series.size() / 2];
  }

 private:
  alignas(128) std::atomic<int> turns_{0};
};

/// Of this core: independent multiply-adds on registers.
double rate() {
  constexpr int kLanes = 128;
  constexpr int kRounds = 200000;
  std::array<float, kLanes> values{};
  std::iota(values.begin(), values.end(), 0.0F);
  const auto begin = Clock::now();
  for (int round = 0; round < kRounds; ++round) {
    for (float& value : values) {
      value = value * 0.999F + 0.001F;
    }
  }
  const double result = kLanes * static_cast<double>(kRounds) / nanoseconds_since(begin);
  volatile float kept = std::accumulate(values.begin(), values.end(), 0.0F);
  static_cast<void>(kept);
  return result;
}

void look(const std::array<int, 2>& cores) {
  Line line;
  std::atomic<int> arrived{0};
  double line_ns = 0.0;
  std::array<double, 2> rates{};
  const auto body = [&](int side) {
    pin(cores[static_cast<size_t>(side)]);
    const double ns = line.pass(side);
    if (side == 0) {
      line_ns = ns;
    }
    ++arrived;
    while (arrived < 2) {
    }
    rates[static_cast<size_t>(side)] = rate();
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  std::cout << "{\"line_ns\": " << line_ns << ", \"rates\": [" << rates[0] << ", " << rates[1]
            << "]}\n";
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " FIRST SECOND\n";
    return 2;
  }
  try {
    lockstep::benchmarks::look({std::stoi(argv[1]), std::stoi(argv[2])});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
