#include <lockstep/checkpointing/snapshot/vote.h>
#include <lockstep/collectives/error.h>

#include <exception>

namespace lockstep::snapshot {
namespace {

constexpr char kDone = '+';
constexpr char kFailed = '-';

}  // namespace

Outcome Outcome::of(const std::function<std::string()>& action) {
  try {
    return {false, action()};
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::exception& error) {
    return {true, error.what()};
  }
}

std::vector<Outcome> exchange(Communicator& ranks, const Outcome& mine) {
  std::vector<Outcome> outcomes;
  for (const std::string& word :
       ranks.all_gather_bytes((mine.failed ? kFailed : kDone) + mine.text)) {
    outcomes.push_back({word.front() == kFailed, word.substr(1)});
  }
  return outcomes;
}

std::optional<std::string> failures_in(const std::vector<Outcome>& outcomes) {
  std::string text;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].failed) {
      text += c10::str(text.empty() ? "" : "; ", "rank ", rank, " of ", outcomes.size(), ": ",
                       outcomes[rank].text);
    }
  }
  return text.empty() ? std::nullopt : std::make_optional(text);
}

std::vector<std::string> all_or_none(Communicator& ranks, const std::string& doing,
                                     const std::function<std::string()>& action) {
  const std::vector<Outcome> outcomes = exchange(ranks, Outcome::of(action));
  if (const auto failures = failures_in(outcomes)) {
    throw Error(doing + ": " + *failures, ExitCode::snapshot);
  }
  std::vector<std::string> texts;
  for (const Outcome& outcome : outcomes) {
    texts.push_back(outcome.text);
  }
  return texts;
}

}  // namespace lockstep::snapshot
