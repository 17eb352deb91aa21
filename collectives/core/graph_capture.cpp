#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/graph_capture.h>

#include <lockstep/collectives/impl/transport.h>

namespace lockstep::detail {

std::string graph_capture_refusal(const Communicator& communicator) {
  if (communicator.transport().graph_capture() != nullptr) {
    return {};
  }
  return c10::str("the collectives of the ", communicator.transport_name(),
                  " transport go through the host, which has no part in a CUDA graph");
}

GraphCapture& graph_capture(const Communicator& communicator) {
  GraphCapture* result = communicator.transport().graph_capture();
  if (result == nullptr) {
    throw Error(graph_capture_refusal(communicator));
  }
  return *result;
}

}  // namespace lockstep::detail
