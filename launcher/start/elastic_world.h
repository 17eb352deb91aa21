#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "start/places.h"

namespace lockstep::launcher {

/// Decides for each attempt which ranks start where, if a job may continue with fewer ranks
/// (--min-ranks).
///
/// A place is left out while its host does not answer, and if it is to blame (the same rank, or a
/// rank of the same host) for two failed attempts in a row of which the second was short. It is
/// used again after an attempt that was not short; then one short attempt leaves it out again.
class ElasticWorld {
 public:
  /// Asks hosts: ask_hosts() with its command.
  using Ask = std::function<std::map<std::string, std::string>(const std::vector<std::string>&)>;

  /// `ranks`: of the job with all places.
  ElasticWorld(std::vector<Place> places, int ranks, int min_ranks, Ask ask);

  /// A rank that a failed attempt is blamed on, with its host's own name.
  struct Blamed {
    int rank = 0;
    std::string host;
  };

  /// The ranks of the next attempt.
  struct World {
    int ranks = 0;
    std::vector<Place> places;  // the places that are used
    std::vector<int> numbers;   // indices of these among all places of the job
    bool is_whole = true;       // all places are used
    std::string news;           // changes since the last attempt and why; empty: none
  };
  /// The world after a failed attempt. `blamed`: the ranks to blame. `is_short`: it made no
  /// progress. Asks the hosts. Do not start a world of fewer than min_ranks.
  World after(const std::vector<Blamed>& blamed, bool is_short);

 private:
  struct State {
    Place place;
    std::string host;  // the host's own name; empty: unknown
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
