#include "cause.h"

#include <lockstep/collectives/core/rank_names.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

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

/// Passes `expected` if it is next.
bool skip(std::string_view text, size_t& at, std::string_view expected) {
  const bool found = text.substr(at, expected.size()) == expected;
  at += found ? expected.size() : 0;
  return found;
}

/// Passes all digits that are next. A number above `limit` counts as `limit`; -1: there is none.
int read_number(std::string_view text, size_t& at, int limit) {
  int64_t value = -1;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = std::min<int64_t>(std::max<int64_t>(value, 0) * 10 + (text[at] - '0'), limit);
  }
  return static_cast<int>(value);
}

bool begins_word(std::string_view text, size_t at) {
  return at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0;
}

/// Where a message of this rank says what it is about, behind "rank 1: " or "rank 1 of 4: ".
size_t after_own_name(std::string_view text, int rank) {
  const std::string own = "rank " + std::to_string(rank);
  for (size_t name = text.find(own); name < text.size(); name = text.find(own, name + 1)) {
    size_t at = name + own.size();
    if (skip(text, at, " of ")) {
      read_number(text, at, /*limit=*/INT_MAX);
    }
    if (begins_word(text, name) && skip(text, at, ": ")) {
      return at;
    }
  }
  return text.size();
}

/// Passes what begins with "rank" here, or one byte. Returns the first and last of each range of
/// ranks if that is a sign of lost ranks, such as "ranks 0, 2-4 did not arrive", as
/// collectives/core/rank_sign.cpp writes them. A number above `limit` counts as `limit`.
std::vector<std::pair<int, int>> read_sign(std::string_view text, size_t& at, int limit) {
  const bool begins = begins_word(text, at);
  std::vector<std::pair<int, int>> ranges;
  if (!skip(text, at, "ranks ") && !skip(text, at, "rank ")) {
    ++at;
    return {};
  }
  do {
    const int low = read_number(text, at, limit);
    const int high = skip(text, at, "-") ? read_number(text, at, limit) : low;
    if (low < 0 || high < 0) {
      return {};
    }
    ranges.emplace_back(low, high);
  } while (skip(text, at, ", "));
  for (const char* sign : {" did not arrive", " has died or left", " have died or left"}) {
    if (begins && skip(text, at, sign)) {
      return ranges;
    }
  }
  return {};
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
    blamed = blamed_by(next, ranks.size(), output.last_lines(next));
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

std::vector<int> blamed_by(int rank, int ranks, const std::vector<std::string>& lines) {
  // By how much the number of ranges that hold a rank differs from that of the rank before.
  std::vector<int> changes(static_cast<size_t>(ranks) + 1);
  bool found = false;
  for (const std::string& line : lines) {
    for (size_t at = after_own_name(line, rank); at < line.size(); at = line.find("rank", at)) {
      for (const auto& [low, high] : read_sign(line, at, ranks)) {
        if (low <= high && low < ranks && !(low == rank && high == rank)) {
          found = true;
          ++changes[static_cast<size_t>(low)];
          --changes[static_cast<size_t>(std::min(high + 1, ranks))];
        }
      }
    }
    if (found) {
      break;  // what follows the first such line repeats it
    }
  }
  std::vector<int> blamed;
  for (int each = 0, ranges = 0; each < ranks; ++each) {
    ranges += changes[static_cast<size_t>(each)];
    if (ranges > 0 && each != rank) {
      blamed.push_back(each);
    }
  }
  return blamed;
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
  // A rank that was asked to stop ended for that, unless it had a message to end with.
  const auto ended_like_it = [&](const RankFailure& other) {
    if (!other.stopped) {
      return other.code == code_of(said);
    }
    return code_of(said) <= 128 && ranks[other.rank].signs.stage() != Stage::none &&
           output.last_lines(other.rank) != output.comparable_lines(other.rank);
  };
  std::vector<int> alike;
  for (const RankFailure& other : ranks.failures()) {
    if (other.rank == said ||
        (ended_like_it(other) && output.comparable_lines(other.rank) == lines)) {
      alike.push_back(other.rank);
    }
  }
  std::sort(alike.begin(), alike.end());
  const bool alone = alike.size() <= 1;
  const bool is_own = cause.ranks == std::vector<int>{said};
  if (is_own && !alone) {
    text.erase(0, rank_names(cause.ranks).size());
    const std::string_view singular = " was ";
    if (text.compare(0, singular.size(), singular) == 0) {
      text.replace(0, singular.size(), " were ");
    }
    text.insert(0, rank_names(alike));
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
