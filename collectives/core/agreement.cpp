#include <ATen/ops/zeros.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <lockstep/collectives/impl/outcome.h>
#include <lockstep/collectives/impl/rank_names.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr char kDone = '+';
constexpr char kFailed = '-';
constexpr char kEnd = '\0';  // of what precedes a message

/// Empty for success without a text. If it is empty on all ranks, there is no second collective.
std::string encode(const Outcome& outcome) {
  if (outcome.error.has_value()) {
    const EndSign sign{static_cast<int>(outcome.error->code()), false, "", outcome.error->ranks()};
    return kFailed + to_text(sign) + kEnd + outcome.error->what();
  }
  return outcome.text.empty() ? "" : kDone + outcome.text;
}

Outcome decode(const std::string& bytes) {
  if (bytes.empty()) {
    return {};
  }
  if (bytes[0] == kDone) {
    return {std::nullopt, bytes.substr(1)};
  }
  const size_t end = bytes.find(kEnd);
  const EndSign sign = parse_end_sign(bytes.substr(1, end - 1));
  return {Error(bytes.substr(end + 1), static_cast<ExitCode>(sign.code), sign.ranks), ""};
}

/// Called when a rank is known to have failed.
SharedError shared_failure(const Agreement& agreement, const std::optional<Error>& mine) {
  const auto failure = failure_in(agreement.exchange({mine, ""}));
  return {failure.value_or(Error("a rank failed without a message")), mine.has_value()};
}

}  // namespace

std::optional<Error> failure_in(const std::vector<Outcome>& outcomes) {
  const auto first = std::find_if(outcomes.begin(), outcomes.end(),
                                  [](const Outcome& outcome) { return outcome.error.has_value(); });
  if (first == outcomes.end()) {
    return std::nullopt;
  }
  std::vector<std::string> messages;
  for (const Outcome& outcome : outcomes) {
    messages.emplace_back(outcome.error.has_value() ? outcome.error->what() : "");
    if (outcome.error.has_value() && messages.back().empty()) {
      messages.back() = "no message";
    }
  }
  return Error(quoted(messages), first->error->code(), first->error->ranks());
}

std::string quoted(const std::vector<std::string>& messages) {
  std::string text;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const auto same = [&](const std::string& other) { return other == messages[rank]; };
    const auto here = messages.begin() + static_cast<std::ptrdiff_t>(rank);
    if (messages[rank].empty() || std::any_of(messages.begin(), here, same)) {
      continue;
    }
    std::vector<int> ranks;
    for (size_t other = rank; other < messages.size(); ++other) {
      if (same(messages[other])) {
        ranks.push_back(static_cast<int>(other));
      }
    }
    const std::string name = rank_names(ranks) + ": ";
    const bool has_name = messages[rank].rfind(name, 0) == 0;
    text += (text.empty() ? "" : "; ") + (has_name ? "" : name) + messages[rank];
  }
  return text;
}

Agreement::Agreement(Communicator communicator)
    : Agreement(std::move(communicator), ExitCode::usage) {}

Agreement::Agreement(Communicator communicator, ExitCode otherwise)
    : communicator_(std::move(communicator)), otherwise_(otherwise) {}

bool Agreement::any(bool mine) const {
  const at::Tensor count = at::zeros({1}, at::kInt);
  count.mutable_data_ptr<int32_t>()[0] = mine ? 1 : 0;
  communicator_.all_reduce(count).wait();
  return count.const_data_ptr<int32_t>()[0] != 0;
}

void Agreement::attempt(const std::function<void()>& action) const {
  attempt("", action);
}

void Agreement::attempt(const std::string& doing, const std::function<void()>& action) const {
  gather(doing, [&] {
    action();
    return "";
  });
}

std::vector<std::string> Agreement::gather(const std::string& doing,
                                           const std::function<std::string()>& action) const {
  std::vector<Outcome> outcomes = exchange(outcome_of(action));
  if (const auto failure = failure_in(outcomes)) {
    const auto own = static_cast<size_t>(communicator_.rank());
    throw SharedError(Error(doing.empty() ? failure->what() : doing + ": " + failure->what(),
                            failure->code(), failure->ranks()),
                      outcomes[own].error.has_value());
  }
  std::vector<std::string> texts;
  for (Outcome& outcome : outcomes) {
    texts.push_back(std::move(outcome.text));
  }
  return texts;
}

void Agreement::raise_if_any(const std::optional<Error>& mine) const {
  if (const auto failure = failure_in(exchange({mine, ""}))) {
    throw SharedError(*failure, mine.has_value());
  }
}

void Agreement::raise(const std::optional<Error>& mine) const {
  throw shared_failure(*this, mine);
}

void Agreement::raise(const Error& mine, const std::exception_ptr& cause) const {
  const SharedError shared = shared_failure(*this, mine);
  try {
    std::rethrow_exception(cause);
  } catch (...) {
    std::throw_with_nested(shared);
  }
}

Outcome Agreement::outcome_of(const std::function<std::string()>& action) const {
  try {
    return {std::nullopt, action()};
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    const Error error = as_error(std::current_exception());
    const bool has_code = error.code() != ExitCode::usage;
    return {Error(error.what(), has_code ? error.code() : otherwise_, error.ranks()), ""};
  }
}

std::vector<Outcome> Agreement::exchange(const Outcome& mine) const {
  std::vector<Outcome> outcomes;
  for (const std::string& bytes : communicator_.all_gather_bytes(encode(mine))) {
    outcomes.push_back(decode(bytes));
  }
  return outcomes;
}

}  // namespace lockstep::detail
