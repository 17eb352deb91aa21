#include "cause/cause.h"

#include <lockstep/collectives/impl/rank_names.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "machine/machine.h"
#include "rank/exit_codes.h"

namespace lockstep::launcher {
namespace {

using detail::rank_names;
using Stage = LifeSigns::Stage;

std::string describe_code(int code) {
  const char* signal = code > 128 ? sigabbrev_np(code - 128) : nullptr;
  return signal ? std::string("was killed by SIG") + signal
                : "ended with exit code " + std::to_string(code);
}

Cause of(std::vector<int> ranks, const std::string& what, int code) {
  Cause cause;
  cause.headline = rank_names(ranks) + " " + what;
  cause.said = ranks.front();
  cause.ranks = std::move(ranks);
  cause.code = code;
  return cause;
}

/// The rank whose error this rank has thrown with the others; itself if it is its own error. A peer
/// that waited for the failed rank has a text of its own.
int origin_of(int rank, const RankTable& ranks) {
  const LifeSigns& signs = ranks[rank].signs;
  const auto same_error = ranks.where([&](const RankRecord& record) {
    return record.signs.ends_like(signs) && !record.signs.end().is_shared;
  });
  const auto own_error = ranks.where([&](const RankRecord& record) {
    const detail::EndSign& end = record.signs.end();
    return !end.is_shared && end.code != 0 && end.code != exit_peer_lost;
  });
  if (!signs.end().is_shared) {
    return rank;
  }
  return !same_error.empty() ? same_error.front() : !own_error.empty() ? own_error.front() : rank;
}

/// `cause`, that this rank ended. To blame are the ranks that its error is about, else all that
/// have the same error of their own.
Cause found_by(int rank, Cause cause, const RankTable& ranks) {
  const LifeSigns& signs = ranks[rank].signs;
  const auto alike =
      ranks.where([&](const RankRecord& record) { return record.signs.ends_like(signs); });
  std::vector<int> about = signs.end().ranks;
  about.erase(
      std::remove_if(about.begin(), about.end(), [&](int each) { return each >= ranks.size(); }),
      about.end());
  if (about.empty()) {
    std::copy_if(alike.begin(), alike.end(), std::back_inserter(about),
                 [&](int each) { return !ranks[each].signs.end().is_shared; });
    if (about.size() < 2) {
      return cause;
    }
  } else if (about != alike) {
    cause.headline += " because of " + rank_names(about);
  }
  cause.ranks = std::move(about);
  cause.is_found = true;
  return cause;
}

/// The first rank that failed before it was asked to stop, and did not only lose its peers. In a
/// job that was asked to stop, a rank may save and leave before the request reaches its host.
std::optional<Cause> own_failure(const RankTable& ranks, bool was_asked) {
  for (const RankFailure& failure : ranks.failures()) {
    if (failure.was_asked || (was_asked && failure.code == exit_preempted)) {
      continue;
    }
    if (ranks[failure.rank].early) {
      return of({failure.rank}, "ended with exit code 0 before its runtime had ended",
                failure.code);
    }
    if (failure.code != exit_peer_lost) {
      const int origin = origin_of(failure.rank, ranks);
      // A rank that threw the error of another may have ended first, and with a code of its own.
      const int code = origin == failure.rank ? failure.code : ranks[origin].signs.end().code;
      return found_by(origin, of({origin}, describe_code(code), code), ranks);
    }
  }
  return std::nullopt;
}

/// The first rank that saved and left. The snapshot is complete for all ranks, however the others
/// ended.
std::optional<Cause> preempted(const RankTable& ranks) {
  for (const RankFailure& failure : ranks.failures()) {
    if (failure.code == exit_preempted) {
      Cause cause = of({failure.rank}, describe_code(exit_preempted), exit_preempted);
      cause.ended_as_asked = true;
      return cause;
    }
  }
  return std::nullopt;
}

/// Whether all ranks have ended, none by a signal.
bool ended_by_themselves(const RankTable& ranks) {
  return ranks
      .where([](const RankRecord& record) { return !record.has_ended() || *record.code > 128; })
      .empty();
}

/// Ranks that ended with 0 without making a runtime, when not all ranks did so.
std::optional<Cause> ended_without_runtime(const RankTable& ranks) {
  const auto ended = ranks.where([](const RankRecord& record) {
    return record.has_ended() && *record.code == 0 && record.signs.stage() == Stage::none;
  });
  if (ended.empty() || static_cast<int>(ended.size()) == ranks.size()) {
    return std::nullopt;
  }
  return of(ended,
            "ended with exit code 0 before making a runtime, which the other ranks waited for",
            exit_peer_lost);
}

std::optional<Cause> lost(const RankTable& ranks, const JobEnd& end) {
  const std::string here = host_name();
  // A report of this host is also missing if mpirun killed a wrapper after another rank's end.
  const bool is_explained =
      end.mpirun_was_killed ||
      std::any_of(ranks.failures().begin(), ranks.failures().end(),
                  [](const RankFailure& failure) { return !failure.was_asked; });
  const auto gone = ranks.where([&](const RankRecord& record) {
    return !record.host.empty() && !record.has_ended() && !(is_explained && record.host == here);
  });
  if (gone.empty()) {
    return std::nullopt;
  }
  std::set<std::string> hosts;
  for (const int rank : gone) {
    hosts.insert(ranks[rank].host);
  }
  std::string names;
  for (const std::string& host : hosts) {
    names += (names.empty() ? "" : ", ") + host;
  }
  return of(gone,
            "on " + names +
                " ended without a report: the host, its network, or the processes that "
                "watch its ranks were lost",
            exit_peer_lost);
}

std::string waited_for(const RankTable& ranks, const std::vector<int>& late) {
  std::string text = "did not arrive at a collective of all ranks";
  for (const int rank : late) {
    if (const int signal = ranks[rank].suspended_by; signal != 0) {
      const char* name = sigabbrev_np(signal);
      text += "; rank " + std::to_string(rank) + " was stopped by SIG" + (name ? name : "?");
    }
  }
  return text;
}

/// Whether it did not wait in vain itself, but left because of a rank that did.
bool left_with_another(const RankRecord& record) {
  const detail::EndSign& end = record.signs.end();
  return !record.signs.waited() && end.code == exit_peer_lost && !end.ranks.empty();
}

/// The ranks that this rank has waited for in vain, or because of which it left.
std::vector<int> missed_by(int rank, const RankTable& ranks) {
  std::vector<int> missed;
  const auto& waited = ranks[rank].signs.waited();
  const std::vector<int>& all = waited ? waited->ranks : ranks[rank].signs.end().ranks;
  std::copy_if(all.begin(), all.end(), std::back_inserter(missed),
               [&](int each) { return each != rank && each < ranks.size(); });
  return missed;
}

bool waited(const RankRecord& record) {
  return record.signs.waited().has_value() ||
         record.code.value_or(record.signs.end().code) == exit_peer_lost;
}

/// The smaller part of the ranks, of those that this rank missed and of the others; all if the
/// parts are equal.
std::vector<int> smaller_part(int rank, const RankTable& ranks) {
  std::vector<int> all(static_cast<size_t>(ranks.size()));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int> missed = missed_by(rank, ranks);
  std::vector<int> others;
  std::set_difference(all.begin(), all.end(), missed.begin(), missed.end(),
                      std::back_inserter(others));
  return others.size() == missed.size() ? all : others.size() < missed.size() ? others : missed;
}

/// Ranks that waited in vain missed ranks that were in another collective, or left with them. If
/// all saw the same small part of the ranks apart from the others, that part is to blame.
Cause waited_for_each_other(const RankTable& ranks, int said) {
  const auto circle = ranks.where([](const RankRecord& record) {
    return record.signs.waited() && !record.signs.waited()->ranks.empty();
  });
  if (circle.empty()) {  // each left because of another
    return of({said}, describe_code(exit_peer_lost), exit_peer_lost);
  }
  const auto all_of_circle = [&](const auto& holds) {
    return std::all_of(circle.begin(), circle.end(), holds);
  };
  const auto collective = [&](int rank) { return ranks[rank].signs.waited()->collective; };
  const std::string first = collective(circle.front());
  const std::vector<int> missed = missed_by(circle.front(), ranks);
  const bool missed_wait =
      std::includes(circle.begin(), circle.end(), missed.begin(), missed.end());
  const std::vector<int> apart = smaller_part(circle.front(), ranks);
  const bool agree = all_of_circle([&](int rank) { return smaller_part(rank, ranks) == apart; });
  Cause cause;
  if (missed_wait && all_of_circle([&](int rank) { return collective(rank) == first; })) {
    cause = of(circle, "waited for each other in " + first, exit_peer_lost);
  } else if (agree && static_cast<int>(apart.size()) < ranks.size()) {
    const auto witness = std::find_if(circle.begin(), circle.end(), [&](int rank) {
      return !std::binary_search(apart.begin(), apart.end(), rank);
    });
    cause = of(apart,
               witness != circle.end() ? "did not arrive at " + collective(*witness)
                                       : "waited in " + first + ", where the others did not arrive",
               exit_peer_lost);
  } else {
    cause = of(agree ? apart : circle, "waited for each other, in different collectives",
               exit_peer_lost);
  }
  cause.said = said;
  return cause;
}

/// Follows the reports of ranks that waited in vain to ranks that did not wait.
std::optional<Cause> peer_lost(const RankTable& ranks) {
  const auto first =
      std::find_if(ranks.failures().begin(), ranks.failures().end(),
                   [](const RankFailure& failure) { return failure.code == exit_peer_lost; });
  if (first == ranks.failures().end()) {
    return std::nullopt;
  }
  std::set<int> passed;
  for (int next = first->rank; passed.insert(next).second;) {
    const std::vector<int> missed = missed_by(next, ranks);
    if (missed.empty()) {
      return of({next}, describe_code(exit_peer_lost), exit_peer_lost);
    }
    if (ranks[next].signs.waited() && std::all_of(missed.begin(), missed.end(), [&](int rank) {
          return left_with_another(ranks[rank]);
        })) {
      return waited_for_each_other(ranks, next);
    }
    std::vector<int> late;
    std::copy_if(missed.begin(), missed.end(), std::back_inserter(late),
                 [&](int rank) { return !waited(ranks[rank]); });
    if (!late.empty()) {
      Cause cause = of(late, waited_for(ranks, late), exit_peer_lost);
      cause.said = next;
      return cause;
    }
    next = missed.front();
  }
  return waited_for_each_other(ranks, first->rank);
}

}  // namespace

std::optional<Cause> find_cause(const RankTable& ranks, const JobEnd& end) {
  if (end.code == 0 && end.overdue.empty()) {
    return std::nullopt;  // the job ended well, whatever ranks reported
  }
  if (auto cause = own_failure(ranks, end.was_asked)) {
    return cause;
  }
  if (end.was_asked || end.overdue.empty()) {
    if (auto cause = preempted(ranks)) {
      return cause;
    }
  }
  if (!end.overdue.empty() && !(end.was_asked && ended_by_themselves(ranks))) {
    Cause cause;
    cause.headline = end.overdue;
    cause.ranks = end.late;
    cause.code = exit_peer_lost;
    return cause;
  }
  if (end.code != 0 && !end.was_asked) {
    if (auto cause = ended_without_runtime(ranks)) {
      return cause;
    }
    if (auto cause = lost(ranks, end)) {
      return cause;
    }
  }
  if (auto cause = peer_lost(ranks)) {
    return cause;
  }
  if (ranks.failures().empty()) {
    return std::nullopt;
  }
  const RankFailure& first = ranks.failures().front();
  Cause cause = of({first.rank}, describe_code(first.code), first.code);
  cause.ended_as_asked = true;
  return cause;
}

}  // namespace lockstep::launcher
