#include <lockstep/collectives/rank_names.h>
#include <lockstep/collectives/shared_error.h>

#include <algorithm>

namespace lockstep {
namespace {

/// The exit code in the first byte, then the text.
std::string encode(const std::string& message, ExitCode code) {
  return static_cast<char>(code) + message;
}

/// What all ranks throw.
Error gathered(Communicator& communicator, const std::string& encoded) {
  std::vector<std::string> messages = communicator.all_gather_bytes(encoded);
  const auto failed = std::find_if(messages.begin(), messages.end(),
                                   [](const std::string& message) { return !message.empty(); });
  if (failed == messages.end()) {
    return Error("a rank failed without a message");
  }
  const auto code = static_cast<ExitCode>(failed->front());
  for (std::string& message : messages) {
    message =
        message.size() == 1 ? "no message" : message.substr(std::min<size_t>(1, message.size()));
  }
  return Error(quoted(messages), code);
}

}  // namespace

std::string quoted(const std::vector<std::string>& messages, const std::string& of) {
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
    text += c10::str(text.empty() ? "" : "; ", rank_names(ranks), of, ": ", messages[rank]);
  }
  return text;
}

void throw_on_every_rank(Communicator& communicator, const std::optional<std::string>& message,
                         ExitCode code) {
  throw gathered(communicator, message.has_value() ? encode(*message, code) : std::string());
}

void throw_on_every_rank(Communicator& communicator, const Error& mine,
                         const std::exception_ptr& cause) {
  const Error shared = gathered(communicator, encode(mine.what(), mine.code()));
  try {
    std::rethrow_exception(cause);
  } catch (...) {
    std::throw_with_nested(shared);
  }
}

}  // namespace lockstep
