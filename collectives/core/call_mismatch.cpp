#include <lockstep/collectives/core/call_mismatch.h>
#include <lockstep/collectives/exceptions.h>

#include <lockstep/collectives/impl/odd_ranks.h>
#include <lockstep/collectives/impl/rank_names.h>

#include <algorithm>
#include <cstdio>
#include <map>

namespace lockstep::detail {
namespace {

constexpr uint64_t kLogTail = 8;

/// Ranks as "0, 2, 3", or "0, 1, 2, 3 and 28 more".
std::string list_ranks(const std::vector<size_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kShown) {
    text += c10::str(" and ", ranks.size() - kShown, " more");
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

void throw_if_calls_differ(int rank, const CollectiveCall& own,
                           const std::vector<CollectiveCall>& calls,
                           const std::vector<int>& job_ranks) {
  const bool equal = std::all_of(calls.begin(), calls.end(),
                                 [&](const CollectiveCall& call) { return call == calls[0]; });
  if (equal) {
    return;
  }
  std::map<std::string, std::vector<size_t>> callers;
  std::vector<std::string> texts;
  for (size_t k = 0; k < calls.size(); ++k) {
    texts.push_back(calls[k].describe());
    callers[texts.back()].push_back(k);
  }
  std::string text = c10::str("rank ", rank, " of ", calls.size(),
                              ": the ranks do not make the same call #", own.sequence, ":");
  for (const auto& entry : callers) {
    text += "\n  " + list_ranks(entry.second) + ": " + entry.first;
  }
  // Calls of equal texts differ where a host's memory is faulty.
  const auto found = odd_ranks(texts);
  std::vector<int> odd = found ? found->ranks : std::vector<int>();
  for (int& each : odd) {
    each = job_ranks.empty() ? each : job_ranks[static_cast<size_t>(each)];
  }
  std::sort(odd.begin(), odd.end());
  throw Error(text +
                  "\nEvery rank must make the same collective calls in the same order, with the "
                  "same dtype, size, operation and root.",
              ExitCode::usage, odd);
}

std::string PeerTrouble::cause() const {
  std::string text;
  for (const RankSign& sign : late) {
    if (!sign.cause.empty()) {
      return sign.cause;
    }
    text += (text.empty() ? "" : "; ") + describe_sign(sign);
  }
  if (!silent.empty()) {
    text += c10::str(text.empty() ? "all ranks of this node have arrived; " : "; ",
                     rank_names(silent), silent.size() == 1 ? ", which is" : ", which are",
                     " on another node, gave no sign of life: stopped, dead, unreachable, or in a "
                     "call on another communicator");
  }
  return text.empty() ? "all ranks have arrived, but data of another node has not" : text;
}

ExitCode PeerTrouble::code() const {
  const auto said =
      std::find_if(late.begin(), late.end(), [](const RankSign& sign) { return sign.code != 0; });
  return said == late.end() ? ExitCode::peer_lost : static_cast<ExitCode>(said->code);
}

std::string describe_trouble(const PeerTrouble& trouble, const CollectiveCall& call,
                             const CollectiveLog& log) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", trouble.seconds);
  std::string text = c10::str("rank ", trouble.rank, " of ", trouble.size, ": ", call.describe(),
                              trouble.label.empty() ? "" : " (" + trouble.label + ")",
                              trouble.some_are_gone ? " failed after " : " timed out after ",
                              seconds, " s: ", trouble.cause());
  for (const RankSign& sign : trouble.late) {
    if (!sign.cause.empty()) {
      text += c10::str(" (found by rank ", sign.rank, ", which has left)");
      break;
    }
  }
  return text + "\nLast calls of this rank:\n" + log.render(kLogTail) +
         "Look at the late rank's own output first; restart from the last snapshot.";
}

}  // namespace lockstep::detail
