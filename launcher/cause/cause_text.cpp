#include "cause/cause_text.h"

#include <lockstep/collectives/impl/rank_names.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace lockstep::launcher {
namespace {

using detail::rank_names;
using Stage = LifeSigns::Stage;

int code_of(const RankRecord& record) {
  return record.code.value_or(record.signs.end().code);
}

/// `said` and the ranks that failed in the same way.
std::vector<int> alike(int said, const RankTable& ranks) {
  const RankRecord& own = ranks[said];
  const auto ended_like_it = [&](const RankRecord& other) {
    const bool same_code = code_of(other) == code_of(own);
    if (own.signs.end().code == 0) {
      return same_code && other.signs.end().code == 0 && other.early == own.early &&
             !other.was_asked && !own.was_asked;
    }
    return other.signs.ends_like(own.signs) &&
           (same_code || (other.was_asked && code_of(own) <= 128));
  };
  std::vector<int> found = {said};
  for (const RankFailure& failure : ranks.failures()) {
    if (failure.rank != said && ended_like_it(ranks[failure.rank])) {
      found.push_back(failure.rank);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// "rank 1 was killed" as "ranks 1-2 were killed".
std::string headline_of(const Cause& cause, const std::vector<int>& ranks) {
  std::string text = cause.headline.substr(rank_names({*cause.said}).size());
  const std::string_view singular = " was ";
  if (text.compare(0, singular.size(), singular) == 0) {
    text.replace(0, singular.size(), " were ");
  }
  return rank_names(ranks) + text;
}

/// What a rank whose output was lost has reported by its life signs.
std::string reported_by(int rank, const RankRecord& record) {
  const std::string& error = record.signs.end().text;
  return error.empty() ? " and printed nothing\n"
                       : "; rank " + std::to_string(rank) +
                             " printed nothing, but reported:\n  | " + error + "\n";
}

std::string last_lines_of(const Cause& cause, const std::vector<int>& group, const RankTable& ranks,
                          const JobOutput& output) {
  const int said = *cause.said;
  const auto lines = output.comparable_lines(said);
  if (lines.empty()) {
    return reported_by(said, ranks[said]);
  }
  const bool alone = group.size() <= 1;
  const bool is_own = cause.ranks == (cause.is_found ? group : std::vector<int>{said});
  const bool all_equal = std::all_of(
      group.begin(), group.end(), [&](int rank) { return output.comparable_lines(rank) == lines; });
  std::string text =
      is_own && alone ? "; its last lines"
      : is_own && all_equal
          ? "; the last lines of each"
          : "; the last lines of " + rank_names(all_equal ? group : std::vector<int>{said});
  text += ":\n";
  for (const std::string& line : alone || !all_equal ? output.last_lines(said) : lines) {
    text += "  | " + line + "\n";
  }
  const std::string log = output.log_path(said);
  return log.empty() ? text : text + "all of them: " + log + "\n";
}

/// A line about a rank that failed outside of its runtime; empty for other ranks.
std::string stage_of(int rank, const RankRecord& record) {
  const Stage stage = record.signs.stage();
  if (record.early) {
    return "every rank must leave lockstep::run, or destroy its Runtime, before it ends\n";
  }
  if (stage == Stage::up || stage == Stage::leaving) {
    return "";
  }
  return "rank " + std::to_string(rank) +
         (stage == Stage::none       ? " had not made a lockstep runtime\n"
          : stage == Stage::starting ? " was making its lockstep runtime\n"
                                     : " had left its lockstep runtime\n");
}

}  // namespace

std::string describe(const Cause& cause, const RankTable& ranks, const JobOutput& output) {
  if (!cause.said) {
    return cause.headline + "\n";
  }
  const auto group = alike(*cause.said, ranks);
  const bool is_of_said = cause.is_found || cause.ranks == std::vector<int>{*cause.said};
  std::string text = is_of_said && group.size() > 1 ? headline_of(cause, group) : cause.headline;
  text += last_lines_of(cause, group, ranks, output);
  for (const int rank : cause.is_found ? std::vector<int>{*cause.said} : cause.ranks) {
    text += stage_of(rank, ranks[rank]);
  }
  return text;
}

bool is_known_to_mpirun_alone(const Cause& cause, const RankTable& ranks) {
  if (!cause.said || cause.code > 128) {
    return false;
  }
  const LifeSigns& signs = ranks[*cause.said].signs;
  return signs.stage() == Stage::starting && signs.end().text.empty();
}

}  // namespace lockstep::launcher
