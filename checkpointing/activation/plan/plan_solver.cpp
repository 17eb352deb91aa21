#include <lockstep/checkpointing/activation/plan/plan_solver.h>

#include <algorithm>
#include <array>
#include <limits>

namespace lockstep::activation {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

constexpr std::array<Before, 3> befores = {Before::nothing, Before::kept_stage, Before::region};

/// Plans never put the chain's last stage in a region: backward would recompute it at once.
Pass pass_of(const SegmentMemory& memory, std::size_t last) {
  return last + 1 == memory.stages.size() ? Pass::first : Pass::recompute;
}

std::size_t number_of(Before before) {
  return static_cast<std::size_t>(before);
}

/// The least times of all segments for 0..slots of memory, from short segments to long ones. A
/// segment has one time for each `Before`, whose memory is taken from the same slots.
class TimeTable {
 public:
  TimeTable(const ChainCosts& costs, const SegmentMemory& memory, int64_t slots)
      : costs_(costs), memory_(memory), segment_(costs.size()), width_(slots + 1) {
    for (auto& table : tables_) {
      table.resize(segment_.count());
    }
    for (std::size_t length = 1; length <= costs.size(); ++length) {
      for (std::size_t first = 0; first + length <= costs.size(); ++first) {
        solve(first, first + length - 1);
      }
    }
  }

  double seconds(std::size_t first, std::size_t last, int64_t memory, Before before) const {
    return entry(first, last, before).seconds[memory];
  }
  Decision decision(std::size_t first, std::size_t last, int64_t memory, Before before) const {
    return entry(first, last, before).decisions[memory];
  }

 private:
  struct Entry {
    std::vector<double> seconds;
    std::vector<Decision> decisions;
  };

  const Entry& entry(std::size_t first, std::size_t last, Before before) const {
    return tables_[number_of(before)][segment_(first, last)];
  }

  void solve(std::size_t first, std::size_t last) {
    const std::vector<double> kept = keeping(first, last);
    const Entry regions = starting_with_region(first, last);
    for (const Before before : befores) {
      if (first > 0 || before == Before::nothing) {
        tables_[number_of(before)][segment_(first, last)] =
            better(kept, regions, first, last, before);
      }
    }
  }

  /// The times if the first stage keeps its activations; better() checks that they fit.
  std::vector<double> keeping(std::size_t first, std::size_t last) const {
    std::vector<double> result(width_, 0.0);
    if (first < last) {
      result = entry(first + 1, last, Before::kept_stage).seconds;
    }
    const double own = costs_[first].forward_seconds + costs_[first].backward_seconds;
    for (double& seconds : result) {
      seconds += own;
    }
    return result;
  }

  Entry starting_with_region(std::size_t first, std::size_t last) const {
    Entry best{std::vector<double>(width_, infinite), std::vector<Decision>(width_, keep_first)};
    if (memory_.stages[first].changes_input) {
      return best;
    }
    const Pass pass = pass_of(memory_, last);
    int64_t needed = 0;
    double forward = 0;
    for (std::size_t end = first + 1; end <= last; ++end) {
      needed = std::max(needed, memory_.passing(end - 1, end - 1 == first, last, pass));
      forward += costs_[end - 1].forward_seconds;
      const double* inside = entry(first, end - 1, Before::nothing).seconds.data();
      const double* behind = entry(end, last, Before::region).seconds.data();
      for (int64_t m = needed; m < width_; ++m) {
        const double seconds = forward + inside[m] + behind[m];
        if (seconds < best.seconds[m]) {
          best.seconds[m] = seconds;
          best.decisions[m] = static_cast<Decision>(end);
        }
      }
    }
    return best;
  }

  Entry better(const std::vector<double>& kept, const Entry& regions, std::size_t first,
               std::size_t last, Before before) const {
    Entry best{std::vector<double>(width_, infinite), std::vector<Decision>(width_, keep_first)};
    const int64_t held_by_stage = memory_.held(first, before, /*by_region=*/false);
    const int64_t held_by_region = memory_.held(first, before, /*by_region=*/true);
    const int64_t keeping = memory_.keeping(first, last, before, pass_of(memory_, last));
    for (int64_t m = held_by_stage + keeping; m < width_; ++m) {
      best.seconds[m] = kept[m - held_by_stage];
    }
    for (int64_t m = held_by_region; m < width_; ++m) {
      if (regions.seconds[m - held_by_region] < best.seconds[m]) {
        best.seconds[m] = regions.seconds[m - held_by_region];
        best.decisions[m] = regions.decisions[m - held_by_region];
      }
    }
    return best;
  }

  const ChainCosts& costs_;
  const SegmentMemory& memory_;
  const Segments segment_;
  const int64_t width_;
  std::array<std::vector<Entry>, befores.size()> tables_;
};

/// The least memory of all segments, by the same recurrence.
class MemoryTable {
 public:
  explicit MemoryTable(const SegmentMemory& memory)
      : memory_(memory), segment_(memory.stages.size()) {
    const std::size_t stages = memory.stages.size();
    for (auto& table : tables_) {
      table.resize(segment_.count());
    }
    for (std::size_t length = 1; length <= stages; ++length) {
      for (std::size_t first = 0; first + length <= stages; ++first) {
        solve(first, first + length - 1);
      }
    }
  }

  struct Entry {
    int64_t memory = std::numeric_limits<int64_t>::max();
    Decision decision = keep_first;
  };
  const Entry& entry(std::size_t first, std::size_t last, Before before) const {
    return tables_[number_of(before)][segment_(first, last)];
  }

 private:
  void solve(std::size_t first, std::size_t last) {
    const int64_t rest = first < last ? entry(first + 1, last, Before::kept_stage).memory : 0;
    const Entry regions = starting_with_region(first, last);
    for (const Before before : befores) {
      if (first == 0 && before != Before::nothing) {
        continue;
      }
      Entry best;
      const int64_t keeping = memory_.keeping(first, last, before, pass_of(memory_, last));
      best.memory = memory_.held(first, before, false) + std::max(keeping, rest);
      const int64_t held = memory_.held(first, before, true);
      if (regions.decision != keep_first && held + regions.memory < best.memory) {
        best = {held + regions.memory, regions.decision};
      }
      tables_[number_of(before)][segment_(first, last)] = best;
    }
  }

  Entry starting_with_region(std::size_t first, std::size_t last) const {
    Entry best;
    if (memory_.stages[first].changes_input) {
      return best;
    }
    const Pass pass = pass_of(memory_, last);
    int64_t passing = 0;
    for (std::size_t end = first + 1; end <= last; ++end) {
      passing = std::max(passing, memory_.passing(end - 1, end - 1 == first, last, pass));
      const int64_t needed = std::max({passing, entry(first, end - 1, Before::nothing).memory,
                                       entry(end, last, Before::region).memory});
      if (needed < best.memory) {
        best = {needed, static_cast<Decision>(end)};
      }
    }
    return best;
  }

  const SegmentMemory& memory_;
  const Segments segment_;
  std::array<std::vector<Entry>, befores.size()> tables_;
};

}  // namespace

std::optional<CheckpointPlan> fastest_plan(const ChainCosts& costs, int64_t slot,
                                           int64_t budget_bytes) {
  const SegmentMemory memory(costs, slot);
  const int64_t sure = budget_bytes / slot;
  const int64_t most = slot == 1 ? sure : sure + sure / 8;
  const TimeTable table(costs, memory, most);
  const std::size_t last = costs.size() - 1;
  for (int64_t slots = most; table.seconds(0, last, slots, Before::nothing) < infinite; --slots) {
    CheckpointPlan plan(pieces_of(
        memory, 0, last, 0, [&](std::size_t from, std::size_t to, int64_t used, Before before) {
          return table.decision(from, to, slots - used, before);
        }));
    if (slots <= sure || plan.predict(costs).peak_bytes <= budget_bytes) {
      return plan;
    }
  }
  return std::nullopt;
}

LeastMemory least_memory(const SegmentMemory& memory) {
  const MemoryTable table(memory);
  const std::size_t last = memory.stages.size() - 1;
  const auto decide = [&](std::size_t from, std::size_t to, int64_t, Before before) {
    return table.entry(from, to, before).decision;
  };
  return {table.entry(0, last, Before::nothing).memory,
          CheckpointPlan(pieces_of(memory, 0, last, 0, decide))};
}

}  // namespace lockstep::activation
