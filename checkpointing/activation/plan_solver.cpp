#include <lockstep/checkpointing/activation/plan_solver.h>

#include <algorithm>
#include <limits>

namespace lockstep::activation {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Least times of all segments for 0..slots of memory, from short segments to long ones.
class TimeTable {
 public:
  TimeTable(const ChainCosts& costs, const SegmentMemory& memory, int64_t slots)
      : costs_(costs),
        memory_(memory),
        segment_(costs.size()),
        width_(static_cast<std::size_t>(slots) + 1),
        seconds_(segment_.count()),
        decisions_(segment_.count()) {
    for (std::size_t length = 1; length <= costs.size(); ++length) {
      for (std::size_t first = 0; first + length <= costs.size(); ++first) {
        solve(first, first + length - 1);
      }
    }
  }

  double seconds(std::size_t first, std::size_t last, int64_t memory) const {
    return seconds_[segment_(first, last)][memory];
  }
  Decision decision(std::size_t first, std::size_t last, int64_t memory) const {
    return decisions_[segment_(first, last)][memory];
  }

 private:
  void solve(std::size_t first, std::size_t last) {
    std::vector<double> best(width_, infinite);
    std::vector<Decision> choice(width_, keep_first);
    try_keeping(first, last, best);
    int64_t needed = 0;
    double forward = 0;
    for (std::size_t end = first + 1; end <= last; ++end) {
      needed = std::max(needed, memory_.passing(end - 1, end - 1 == first, last));
      forward += costs_[end - 1].forward_seconds;
      try_region(first, last, end, needed, forward, best, choice);
    }
    seconds_[segment_(first, last)] = std::move(best);
    decisions_[segment_(first, last)] = std::move(choice);
  }

  void try_keeping(std::size_t first, std::size_t last, std::vector<double>& best) const {
    const double own = costs_[first].forward_seconds + costs_[first].backward_seconds;
    const int64_t saved = memory_.stages[first].saved;
    const auto width = static_cast<int64_t>(width_);
    for (int64_t m = memory_.keeping(first, last); m < width; ++m) {
      best[m] = own + (first == last ? 0 : seconds(first + 1, last, m - saved));
    }
  }

  void try_region(std::size_t first, std::size_t last, std::size_t end, int64_t needed,
                  double forward, std::vector<double>& best, std::vector<Decision>& choice) const {
    const int64_t output = memory_.stages[end - 1].output;
    const double* inside = seconds_[segment_(first, end - 1)].data();
    const double* behind = seconds_[segment_(end, last)].data();
    const auto width = static_cast<int64_t>(width_);
    for (int64_t m = std::max(needed, output); m < width; ++m) {
      const double seconds = forward + inside[m] + behind[m - output];
      if (seconds < best[m]) {
        best[m] = seconds;
        choice[m] = static_cast<Decision>(end);
      }
    }
  }

  const ChainCosts& costs_;
  const SegmentMemory& memory_;
  const Segments segment_;
  const std::size_t width_;
  std::vector<std::vector<double>> seconds_;
  std::vector<std::vector<Decision>> decisions_;
};

}  // namespace

std::optional<CheckpointPlan> fastest_plan(const ChainCosts& costs, const SegmentMemory& memory,
                                           int64_t slots) {
  const TimeTable table(costs, memory, slots);
  const std::size_t last = costs.size() - 1;
  if (table.seconds(0, last, slots) == infinite) {
    return std::nullopt;
  }
  return CheckpointPlan(
      pieces_of(memory, 0, last, 0, [&](std::size_t from, std::size_t to, int64_t used) {
        return table.decision(from, to, slots - used);
      }));
}

LeastMemory least_memory(const SegmentMemory& memory) {
  const std::size_t stages = memory.stages.size();
  const Segments segment(stages);
  std::vector<int64_t> least(segment.count());
  std::vector<Decision> choice(segment.count(), keep_first);
  for (std::size_t length = 1; length <= stages; ++length) {
    for (std::size_t first = 0; first + length <= stages; ++first) {
      const std::size_t last = first + length - 1;
      int64_t& best = least[segment(first, last)];
      best = memory.keeping(first, last);
      if (first < last) {
        best = std::max(best, memory.stages[first].saved + least[segment(first + 1, last)]);
      }
      int64_t passing = 0;
      for (std::size_t end = first + 1; end <= last; ++end) {
        passing = std::max(passing, memory.passing(end - 1, end - 1 == first, last));
        const int64_t needed =
            std::max({passing, least[segment(first, end - 1)],
                      memory.stages[end - 1].output + least[segment(end, last)]});
        if (needed < best) {
          best = needed;
          choice[segment(first, last)] = static_cast<Decision>(end);
        }
      }
    }
  }
  const auto decide = [&](std::size_t from, std::size_t to, int64_t) {
    return choice[segment(from, to)];
  };
  return {least[segment(0, stages - 1)],
          CheckpointPlan(pieces_of(memory, 0, stages - 1, 0, decide))};
}

}  // namespace lockstep::activation
