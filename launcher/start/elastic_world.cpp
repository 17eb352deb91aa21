#include "start/elastic_world.h"

#include <algorithm>
#include <numeric>

namespace lockstep::launcher {
namespace {

/// Whether two names mean the same host, such as "node1" and "node1.cluster".
bool is_same_host(const std::string& a, const std::string& b) {
  return !a.empty() && a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
}

std::string count_of(int ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

}  // namespace

ElasticWorld::ElasticWorld(std::vector<Place> places, int ranks, int min_ranks, Ask ask)
    : ranks_(ranks), min_ranks_(min_ranks), ask_(std::move(ask)), last_ranks_(ranks) {
  for (Place& place : places) {
    states_.push_back({std::move(place), "", true, false, 0});
  }
  last_used_ = in_use();
}

std::vector<int> ElasticWorld::in_use() const {
  std::vector<int> used;
  for (size_t number = 0; number < states_.size(); ++number) {
    if (states_[number].answers && !states_[number].left_out) {
      used.push_back(static_cast<int>(number));
    }
  }
  return used;
}

bool ElasticWorld::is_blamed(size_t number, const std::vector<Blamed>& blamed) const {
  const State& state = states_[number];
  const auto used = std::find(last_used_.begin(), last_used_.end(), static_cast<int>(number));
  if (used == last_used_.end()) {
    return false;
  }
  return std::any_of(blamed.begin(), blamed.end(), [&](const Blamed& rank) {
    return is_local()
               ? rank.rank == used - last_used_.begin()
               : is_same_host(rank.host, state.place.name) || is_same_host(rank.host, state.host);
  });
}

void ElasticWorld::count_failures(const std::vector<Blamed>& blamed, bool is_short) {
  std::vector<size_t> failed;
  for (size_t number = 0; number < states_.size(); ++number) {
    if (is_blamed(number, blamed)) {
      failed.push_back(number);
    }
  }
  const bool tells_apart = failed.size() < last_used_.size();  // else the program fails itself
  for (size_t number = 0; number < states_.size(); ++number) {
    State& state = states_[number];
    const bool is_blamed = std::find(failed.begin(), failed.end(), number) != failed.end();
    if (state.left_out) {
      state.left_out = is_short;
      state.failures = 1;
    } else if (!is_blamed || !tells_apart) {
      state.failures = 0;
    } else {
      state.failures = is_short ? state.failures + 1 : 1;
      state.left_out = state.failures >= 2;
    }
  }
}

void ElasticWorld::ask_hosts() {
  if (is_local()) {
    return;
  }
  std::vector<std::string> names;
  for (const State& state : states_) {
    names.push_back(state.place.name);
  }
  const auto answers = ask_(names);
  for (State& state : states_) {
    const auto answer = answers.find(state.place.name);
    state.answers = answer != answers.end() || answers.empty();  // no answer at all: cannot judge
    if (answer != answers.end()) {
      state.host = answer->second;
    }
  }
}

std::string ElasticWorld::reason(int number, bool is_used) const {
  const State& state = states_[static_cast<size_t>(number)];
  const std::string who =
      is_local() ? "the place of rank " + std::to_string(number) : "host " + state.place.name;
  return who + (is_used          ? " is used again"
                : !state.answers ? " does not answer"
                                 : " failed in two attempts in a row");
}

ElasticWorld::World ElasticWorld::after(const std::vector<Blamed>& blamed, bool is_short) {
  ask_hosts();
  count_failures(blamed, is_short);
  World world;
  world.numbers = in_use();
  int slots = 0;
  for (const int number : world.numbers) {
    world.places.push_back(states_[static_cast<size_t>(number)].place);
    slots += world.places.back().slots;
  }
  const int all_slots =
      std::accumulate(states_.begin(), states_.end(), 0,
                      [](int sum, const State& state) { return sum + state.place.slots; });
  world.is_whole = world.numbers.size() == states_.size();
  // More ranks than slots stay as many on each slot.
  world.ranks = ranks_ <= all_slots
                    ? std::min(ranks_, slots)
                    : static_cast<int>(static_cast<int64_t>(ranks_) * slots / all_slots);
  std::string reasons;
  for (size_t number = 0; number < states_.size(); ++number) {
    const auto has = [&](const std::vector<int>& list) {
      return std::find(list.begin(), list.end(), static_cast<int>(number)) != list.end();
    };
    if (has(world.numbers) != has(last_used_)) {
      reasons +=
          (reasons.empty() ? "" : ", ") + reason(static_cast<int>(number), has(world.numbers));
    }
  }
  if (!reasons.empty()) {
    world.news = world.ranks < min_ranks_
                     ? reasons + ": only " + count_of(world.ranks) +
                           " would have a place, fewer than --min-ranks " +
                           std::to_string(min_ranks_)
                     : "the job goes on with " + count_of(world.ranks) + " instead of " +
                           std::to_string(last_ranks_) + ": " + reasons;
  }
  last_used_ = world.numbers;
  last_ranks_ = world.ranks;
  return world;
}

}  // namespace lockstep::launcher
