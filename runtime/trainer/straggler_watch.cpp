#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <lockstep/runtime/trainer/impl/straggler_watch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr double kRatio = 1.5;
constexpr double kSecondsMore = 0.005;

/// With an even number of ranks the lower one: of two ranks, the faster.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + (static_cast<std::ptrdiff_t>(values.size()) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string percent(double part, double whole) {
  return formatted("%.0f %%", whole > 0 ? 100 * part / whole : 0.0);
}

/// One of the two times of each rank.
std::vector<double> all_of(const std::vector<RankTimes>& times, double RankTimes::*one) {
  std::vector<double> values;
  for (const RankTimes& rank : times) {
    values.push_back(rank.*one);
  }
  return values;
}

}  // namespace

std::optional<SlowestRank> slowest_of(const std::vector<RankTimes>& times) {
  if (times.size() < 2) {
    return std::nullopt;
  }
  const std::vector<double> busy = all_of(times, &RankTimes::busy);
  const auto slowest = std::max_element(busy.begin(), busy.end());
  const double median = median_of(busy);
  if (!(median > 0)) {
    return std::nullopt;
  }
  return SlowestRank{static_cast<int>(slowest - busy.begin()), *slowest / median};
}

std::string describe_straggler(const std::vector<RankTimes>& times, int64_t updates) {
  if (times.size() < 2 || updates == 0) {
    return "";
  }
  const std::vector<double> busy = all_of(times, &RankTimes::busy);
  const std::vector<double> waiting = all_of(times, &RankTimes::waiting);
  const auto slowest = std::max_element(busy.begin(), busy.end()) - busy.begin();
  const auto waits_least = std::min_element(waiting.begin(), waiting.end()) - waiting.begin();
  const double most = busy[static_cast<size_t>(slowest)];
  const double median = median_of(busy);
  const auto count = static_cast<double>(updates);
  if (slowest != waits_least || most < kRatio * median || most - median < kSecondsMore * count) {
    return "";
  }
  const double own_waiting = waiting[static_cast<size_t>(slowest)];
  const double their_waiting = median_of(waiting);
  return c10::str("rank ", slowest, " needs ", formatted("%.1f", median > 0 ? most / median : 0.0),
                  "x the median time to reach the all-reduce, over the last ", updates,
                  " updates: ", formatted("%.1f", 1e3 * most / count), " ms instead of ",
                  formatted("%.1f", 1e3 * median / count), " ms an update. It waits least, ",
                  percent(own_waiting, most + own_waiting), " of its time; the median rank waits ",
                  percent(their_waiting, median + their_waiting),
                  ". Look at that rank's host, its other load, and its data");
}

void StragglerWatch::add(RankTimes times) {
  sum_.busy += times.busy;
  sum_.waiting += times.waiting;
  ++updates_;
}

std::string StragglerWatch::compare(Communicator hosts) {
  const at::Tensor mine = at::tensor({sum_.busy, sum_.waiting}, at::kDouble);
  const at::Tensor all = at::empty({2 * hosts.size()}, at::kDouble);
  hosts.all_gather(all, mine).wait();
  const auto* numbers = all.const_data_ptr<double>();
  std::vector<RankTimes> times;
  for (int rank = 0; rank < hosts.size(); ++rank) {
    times.push_back({numbers[2 * rank], numbers[2 * rank + 1]});
  }
  const std::string text = describe_straggler(times, updates_);
  slowest_ = slowest_of(times);
  ++comparisons_;
  sum_ = {};
  updates_ = 0;
  const auto slowest =
      std::max_element(times.begin(), times.end(),
                       [](const RankTimes& a, const RankTimes& b) { return a.busy < b.busy; });
  const std::ptrdiff_t named = text.empty() ? -1 : slowest - times.begin();
  return std::exchange(named_, named) != named ? text : "";
}

}  // namespace lockstep::detail
