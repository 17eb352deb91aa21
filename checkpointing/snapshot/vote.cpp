#include <lockstep/checkpointing/snapshot/vote.h>
#include <lockstep/collectives/as_error.h>
#include <lockstep/collectives/shared_error.h>

#include <algorithm>
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
  } catch (...) {
    const Error error = as_error(std::current_exception());
    const bool has_code = error.code() != ExitCode::usage;
    return {true, error.what(), has_code ? error.code() : ExitCode::snapshot};
  }
}

std::vector<Outcome> exchange(Communicator& ranks, const Outcome& mine) {
  std::vector<Outcome> outcomes;
  const std::string word{mine.failed ? kFailed : kDone, static_cast<char>(mine.code)};
  for (const std::string& said : ranks.all_gather_bytes(word + mine.text)) {
    outcomes.push_back({said[0] == kFailed, said.substr(2), static_cast<ExitCode>(said[1])});
  }
  return outcomes;
}

std::optional<std::string> failures_in(const std::vector<Outcome>& outcomes) {
  if (failure_code(outcomes) == ExitCode::ok) {
    return std::nullopt;
  }
  std::vector<std::string> messages;
  for (const Outcome& outcome : outcomes) {
    const std::string text = outcome.text.empty() ? "no message" : outcome.text;
    messages.push_back(outcome.failed ? text : "");
  }
  return quoted(messages, c10::str(" of ", outcomes.size()));
}

ExitCode failure_code(const std::vector<Outcome>& outcomes) {
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(),
                                   [](const Outcome& outcome) { return outcome.failed; });
  return failed == outcomes.end() ? ExitCode::ok : failed->code;
}

std::vector<std::string> all_or_none(Communicator& ranks, const std::string& doing,
                                     const std::function<std::string()>& action) {
  const std::vector<Outcome> outcomes = exchange(ranks, Outcome::of(action));
  if (const auto failures = failures_in(outcomes)) {
    throw Error(doing + ": " + *failures, failure_code(outcomes));
  }
  std::vector<std::string> texts;
  for (const Outcome& outcome : outcomes) {
    texts.push_back(outcome.text);
  }
  return texts;
}

}  // namespace lockstep::snapshot
