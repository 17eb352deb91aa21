#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::detail {

enum class CaptureKind : uint8_t {
  /// Without collectives, and the graph is thrown away: shows whether the other work can be
  /// captured. No rank waits for another. A real capture must not fail on one rank only: NCCL may
  /// exchange addresses during capture, and the other ranks would wait.
  rehearsal,
  /// With the collectives in the graph.
  real,
};

/// Captures device work on the caller's stream. Must call `join` inside the capture, after all
/// other work: it joins the streams of the collectives to the captured stream.
using CaptureWith = std::function<void(const std::function<void()>& join)>;

/// Captures the collectives of a communicator into CUDA graphs. Implemented by transports whose
/// collectives are device work only: NCCL, and solo, which has no work. Threads: as the
/// communicator.
class GraphCapture {
 public:
  virtual ~GraphCapture() = default;

  /// Calls `body`, which captures device work on the caller's current stream. The collectives that
  /// it calls become part of the graph, or are left out of a rehearsal. They run with each
  /// launch(), never by themselves: their Work can be waited for during capture, not tested.
  /// Collectives of host tensors, barrier, split and allocate throw Error during capture. The host
  /// first waits until the communicator's device work is done. Returns how many collectives were
  /// captured. Destroy the graphs before their communicator.
  /// Ranks: a rehearsal is local. A real capture is collective and returns once every rank has its
  /// graph; what `body` throws on one rank is thrown as the same Error on all, and ends the
  /// communicator if it has several ranks.
  virtual int64_t capture(CaptureKind kind, const CaptureWith& body) = 0;

  /// Calls `launch`, which launches a graph with `collectives` collectives on the caller's stream.
  /// Log and watchdog treat it as one collective. An exception of `launch` ends the communicator.
  /// Ranks: collective; all launch what they captured together, and call no other collective
  /// meanwhile.
  virtual void launch(int64_t collectives, const std::function<void()>& launch) = 0;
};

/// Why the collectives of this communicator cannot be captured; empty if they can.
std::string graph_capture_refusal(const Communicator& communicator);

/// The GraphCapture of this communicator's transport, which owns it. Throws Error with
/// graph_capture_refusal() if there is none.
GraphCapture& graph_capture(const Communicator& communicator);

}  // namespace lockstep::detail
