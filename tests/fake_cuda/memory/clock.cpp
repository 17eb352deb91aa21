#include "clock.h"

#include <algorithm>

namespace fake_cuda {

void Clock::join(const Clock& other) {
  if (numbers_.empty()) {
    numbers_ = other.numbers_;
    return;
  }
  std::vector<std::pair<uint32_t, uint64_t>> joined;
  joined.reserve(numbers_.size() + other.numbers_.size());
  auto mine = numbers_.begin();
  auto theirs = other.numbers_.begin();
  while (mine != numbers_.end() || theirs != other.numbers_.end()) {
    if (theirs == other.numbers_.end() || (mine != numbers_.end() && mine->first < theirs->first)) {
      joined.push_back(*mine++);
    } else if (mine == numbers_.end() || theirs->first < mine->first) {
      joined.push_back(*theirs++);
    } else {
      joined.emplace_back(mine->first, std::max(mine->second, theirs->second));
      ++mine;
      ++theirs;
    }
  }
  numbers_.swap(joined);
}

void Clock::set(uint32_t lane, uint64_t number) {
  const auto place =
      std::lower_bound(numbers_.begin(), numbers_.end(), std::pair{lane, uint64_t{0}});
  if (place != numbers_.end() && place->first == lane) {
    place->second = std::max(place->second, number);
  } else {
    numbers_.emplace(place, lane, number);
  }
}

bool Clock::knows(uint32_t lane, uint64_t number) const {
  const auto place =
      std::lower_bound(numbers_.begin(), numbers_.end(), std::pair{lane, uint64_t{0}});
  return place != numbers_.end() && place->first == lane && place->second >= number;
}

}  // namespace fake_cuda
