#include <lockstep/collectives/shared_error.h>

#include <vector>

namespace lockstep {
namespace {

/// The exit code in the first byte, then the text.
std::string encode(const std::string& message, ExitCode code) {
  return static_cast<char>(code) + message;
}

[[noreturn]] void throw_gathered(const std::vector<std::string>& messages) {
  std::string text;
  auto code = ExitCode::usage;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (messages[rank].empty()) {
      continue;
    }
    if (text.empty()) {
      code = static_cast<ExitCode>(messages[rank][0]);
    }
    text += c10::str(text.empty() ? "" : "; ", "rank ", rank, ": ", messages[rank].substr(1));
  }
  throw Error(text.empty() ? "a rank failed without a message" : text, code);
}

}  // namespace

void throw_on_every_rank(Communicator& communicator, const std::optional<std::string>& message,
                         ExitCode code) {
  throw_gathered(
      communicator.all_gather_bytes(message.has_value() ? encode(*message, code) : std::string()));
}

void tell_every_rank(Communicator& communicator, const std::string& message, ExitCode code) {
  communicator.all_gather_bytes(encode(message, code));
}

}  // namespace lockstep
