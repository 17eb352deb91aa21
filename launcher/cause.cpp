#include "cause.h"

#include <lockstep/collectives/core/rank_names.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <iterator>
#include <regex>
#include <set>

#include "exit_codes.h"

namespace lockstep::launcher {
namespace {

using detail::rank_names;
using Stage = LifeSigns::Stage;

std::string describe_code(int code) {
  const char* signal = code > 128 ? sigabbrev_np(code - 128) : nullptr;
  return signal ? std::string("was killed by SIG") + signal
                : "ended with exit code " + std::to_string(code);
}

std::string own_host() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

Cause of(std::vector<int> ranks, const std::string& what, int code) {
  Cause cause;
  cause.headline = rank_names(ranks) + " " + what;
  cause.said = ranks.front();
  cause.ranks = std::move(ranks);
  cause.code = code;
  return cause;
}

/// The first that failed and that nobody had asked to stop, if it did not only lose its peers. A
/// rank of a job that was asked may save and leave before the request has come to its own host.
std::optional<Cause> own_failure(const RankTable& ranks, bool was_asked) {
  for (const RankFailure& failure : ranks.failures()) {
    if (failure.stopped || (was_asked && failure.code == exit_preempted)) {
      continue;
    }
    if (ranks[failure.rank].early) {
      return of({failure.rank}, "ended with exit code 0 before its runtime had ended",
                failure.code);
    }
    if (failure.code != exit_peer_lost) {
      return of({failure.rank}, describe_code(failure.code), failure.code);
    }
  }
  return std::nullopt;
}

/// The first that saved and left. Its snapshot is that of all ranks, however the others ended.
std::optional<Cause> preempted(const RankTable& ranks) {
  for (const RankFailure& failure : ranks.failures()) {
    if (failure.code == exit_preempted) {
      Cause cause = of({failure.rank}, describe_code(exit_preempted), exit_preempted);
      cause.stopped = true;
      return cause;
    }
  }
  return std::nullopt;
}

/// All ranks, and none by a signal.
bool ended_by_themselves(const RankTable& ranks) {
  return ranks
      .where([](const RankRecord& record) { return !record.has_ended() || *record.code > 128; })
      .empty();
}

/// Ranks that ended with 0 and never made the runtime that others made, or that others had been
/// ended for.
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
  const std::string here = own_host();
  // On this host a report is also missing where mpirun killed a wrapper after another rank's end.
  const bool is_explained =
      end.mpirun_was_killed ||
      std::any_of(ranks.failures().begin(), ranks.failures().end(),
                  [](const RankFailure& failure) { return !failure.stopped; });
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
    if (const int signal = ranks[rank].halted_by; signal != 0) {
      const char* name = sigabbrev_np(signal);
      text += "; rank " + std::to_string(rank) + " was stopped by SIG" + (name ? name : "?");
    }
  }
  return text;
}

/// Of the ranks that say that others are late or gone: follows what they say to a rank that says
/// nothing of the kind.
std::optional<Cause> peer_lost(const RankTable& ranks, const JobOutput& output) {
  const auto first =
      std::find_if(ranks.failures().begin(), ranks.failures().end(),
                   [](const RankFailure& failure) { return failure.code == exit_peer_lost; });
  if (first == ranks.failures().end()) {
    return std::nullopt;
  }
  const auto waits = [&](int rank) {
    const auto& record = ranks[rank];
    return record.code.value_or(record.signs.exit_code()) == exit_peer_lost;
  };
  std::vector<int> path;
  std::vector<int> blamed = {first->rank};
  while (true) {
    const int next = blamed.front();
    if (std::find(path.begin(), path.end(), next) != path.end()) {
      std::vector<int> circle;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        if (waits(rank)) {
          circle.push_back(rank);
        }
      }
      Cause cause = of(circle, "waited for each other, in different collectives", exit_peer_lost);
      cause.said = first->rank;
      return cause;
    }
    path.push_back(next);
    blamed = blamed_by(next, output.last_lines(next));
    blamed.erase(std::lower_bound(blamed.begin(), blamed.end(), ranks.size()), blamed.end());
    if (blamed.empty()) {
      Cause cause = of({next}, describe_code(exit_peer_lost), exit_peer_lost);
      return cause;
    }
    const auto silent = std::find_if_not(blamed.begin(), blamed.end(), waits);
    if (silent != blamed.end()) {
      std::vector<int> late;
      std::copy_if(blamed.begin(), blamed.end(), std::back_inserter(late),
                   [&](int rank) { return !waits(rank); });
      Cause cause = of(late, waited_for(ranks, late), exit_peer_lost);
      cause.said = next;
      return cause;
    }
  }
}

}  // namespace

std::vector<int> blamed_by(int rank, const std::vector<std::string>& lines) {
  static const std::regex pattern(
      R"(\branks? (\d+(?:(?:, | and |-)\d+)*)(?: and \d+ more)? (?:has |have |did |never |is |are |was |were |died|left))");
  static const std::regex number(R"((\d+)(?:-(\d+))?)");
  std::set<int> found;
  for (const std::string& line : lines) {
    for (std::sregex_iterator match(line.begin(), line.end(), pattern), none; match != none;
         ++match) {
      const std::string list = (*match)[1];
      for (std::sregex_iterator part(list.begin(), list.end(), number); part != none; ++part) {
        const int low = std::stoi((*part)[1]);
        const int high = (*part)[2].matched ? std::stoi((*part)[2]) : low;
        for (int each = low; each <= std::min(high, low + 100000); ++each) {
          found.insert(each);
        }
      }
    }
    if (!found.empty()) {
      break;  // what follows the first such line repeats it
    }
  }
  found.erase(rank);
  return {found.begin(), found.end()};
}

std::optional<Cause> find_cause(const RankTable& ranks, const JobOutput& output,
                                const JobEnd& end) {
  if (end.code == 0 && end.overdue.empty()) {
    return std::nullopt;  // all ended well, whatever they said on the way
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
  if (auto cause = peer_lost(ranks, output)) {
    return cause;
  }
  if (ranks.failures().empty()) {
    return std::nullopt;
  }
  const RankFailure& first = ranks.failures().front();
  Cause cause = of({first.rank}, describe_code(first.code), first.code);
  cause.stopped = true;
  return cause;
}

std::string describe(const Cause& cause, const RankTable& ranks, const JobOutput& output) {
  std::string text = cause.headline;
  if (!cause.said) {
    return text + "\n";
  }
  const int said = *cause.said;
  const auto lines = output.comparable_lines(said);
  const auto code_of = [&](int rank) {
    const auto failure = std::find_if(ranks.failures().begin(), ranks.failures().end(),
                                      [&](const RankFailure& each) { return each.rank == rank; });
    return failure == ranks.failures().end() ? 0 : failure->code;
  };
  std::vector<int> alike;
  for (const RankFailure& other : ranks.failures()) {
    const bool same_end = other.code == code_of(said) || (other.stopped && !lines.empty());
    if (other.rank == said || (same_end && output.comparable_lines(other.rank) == lines)) {
      alike.push_back(other.rank);
    }
  }
  std::sort(alike.begin(), alike.end());
  const bool alone = alike.size() <= 1;
  const bool is_own = cause.ranks == std::vector<int>{said};
  if (is_own && !alone) {
    text = rank_names(alike) + text.substr(rank_names(cause.ranks).size());
  }
  if (lines.empty()) {
    text += " and printed nothing\n";
  } else {
    text += !is_own ? "; the last lines of " + rank_names(alone ? std::vector<int>{said} : alike)
            : alone ? "; its last lines"
                    : "; the last lines of each";
    text += ":\n";
    for (const std::string& line : alone ? output.last_lines(said) : lines) {
      text += "  | " + line + "\n";
    }
    if (const std::string log = output.log_path(said); !log.empty()) {
      text += "all of them: " + log + "\n";
    }
  }
  for (const int rank : cause.ranks) {
    const Stage stage = ranks[rank].signs.stage();
    if (ranks[rank].early) {
      text += "every rank must leave lockstep::run, or destroy its Runtime, before it ends\n";
      continue;
    }
    if (stage == Stage::up || stage == Stage::leaving) {
      continue;
    }
    text += "rank " + std::to_string(rank) +
            (stage == Stage::none       ? " had not made a lockstep runtime\n"
             : stage == Stage::starting ? " was making its lockstep runtime\n"
                                        : " had left its lockstep runtime\n");
  }
  return text;
}

}  // namespace lockstep::launcher
