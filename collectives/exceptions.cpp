#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

namespace lockstep {

Error::Error(const std::string& message) : Error(message, ExitCode::usage) {}

Error::Error(const std::string& message, ExitCode code, std::vector<int> ranks)
    : Error(message, code) {
  ranks_ = std::make_shared<const std::vector<int>>(std::move(ranks));
}

const std::vector<int>& Error::ranks() const noexcept {
  static const std::vector<int> none;
  return ranks_ ? *ranks_ : none;
}

CommunicationError::CommunicationError(const std::string& message)
    : Error(message, ExitCode::peer_lost) {}

PeerStepFailed::PeerStepFailed(int rank, const Error& cause)
    : Error(c10::str("rank ", rank, " has failed in this step: ", cause.what(),
                     "; let this exception leave the closure"),
            cause.code(), {rank}),
      rank_(rank) {}

namespace detail {

void throw_error(const std::string& message) {
  throw Error(message);
}
void throw_error(const std::string& message, ExitCode code) {
  throw Error(message, code);
}

}  // namespace detail
}  // namespace lockstep
