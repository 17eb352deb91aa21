#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "start/places.h"

namespace lockstep::launcher {

/// Which ranks start where, attempt after attempt, if a job may go on with fewer ranks
/// (--min-ranks).
///
/// A place is left out while its host does not answer, and when it is to blame for two attempts in
/// a row of which the second was short: the same rank, or a rank of the same host. It is used again
/// after an attempt that was not short; one more short attempt then leaves it out at once.
class ElasticWorld {
 public:
  /// Asks hosts. Returns how each that answers calls itself, by the name it was asked with.
  using Ask = std::function<std::map<std::string, std::string>(const std::vector<std::string>&)>;

  /// `ranks`: of the whole job, on all places.
  ElasticWorld(std::vector<Place> places, int ranks, int min_ranks, Ask ask);

  /// What an attempt that failed says of a rank: its number, and what its host calls itself.
  struct Blamed {
    int rank = 0;
    std::string host;
  };

  /// The ranks of the next attempt.
  struct World {
    int ranks = 0;
    std::vector<Place> places;  // those that are used
    std::vector<int> numbers;   // of these places among all of the job, from 0 on
    bool is_whole = true;       // all places are used
    std::string news;           // what changed since the last attempt, and why; empty: nothing
  };
  /// After an attempt that failed because of these ranks; `is_short`: it made no progress. Asks the
  /// hosts. A world of fewer than min_ranks must not be started.
  World after(const std::vector<Blamed>& blamed, bool is_short);

 private:
  struct State {
    Place place;
    std::string host;  // how it calls itself; empty: unknown
    bool answers = true;
    bool left_out = false;  // because of its failures
    int failures = 0;       // attempts in a row that it is to blame for
  };
  bool is_local() const { return states_.front().place.name.empty(); }
  std::vector<int> in_use() const;
  void ask_hosts();
  void count_failures(const std::vector<Blamed>& blamed, bool is_short);
  bool is_blamed(size_t number, const std::vector<Blamed>& blamed) const;
  std::string reason(int number, bool is_used) const;

  std::vector<State> states_;
  int ranks_;
  int min_ranks_;
  Ask ask_;
  std::vector<int> last_used_;
  int last_ranks_;
};

}  // namespace lockstep::launcher
