#include <lockstep/collectives/transport.h>

#include <lockstep/collectives/error.h>

namespace lockstep {

std::string Transport::recording_refusal() const {
  return c10::str("the collectives of the ", name(),
                  " transport go through the host, which has no part in recorded device work");
}

int64_t Transport::record(Recording, const CaptureWith&) {
  throw Error(recording_refusal());
}

void Transport::replay(int64_t, const std::function<void()>&) {
  throw Error(recording_refusal());
}

}  // namespace lockstep
