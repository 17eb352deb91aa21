#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <algorithm>

namespace lockstep::snapshot {

void reject_with(std::string message) {
  std::replace(message.begin(), message.end(), '\0', '?');
  throw Error(message, ExitCode::snapshot);
}

}  // namespace lockstep::snapshot
