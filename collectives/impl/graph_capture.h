#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::detail {

enum class CaptureKind : uint8_t {
  /// The collectives are left out and the graph is thrown away; no rank waits for another one.
  /// Shows whether the rest of the work can be captured, before it matters: NCCL may exchange
  /// addresses during capture, so a rank that gives up half way would leave the others waiting.
  rehearsal,
  /// The collectives are part of the graph.
  real,
};

/// Captures device work on the caller's stream. Has to call `join` inside the capture, after all
/// other work: what the collectives put on streams of their own is part of the graph from then on.
using CaptureWith = std::function<void(const std::function<void()>& join)>;

/// Lets the collectives of a communicator become part of CUDA graphs. A transport whose collectives
/// are device work alone implements this interface (NCCL; and a world of one rank, which has none).
/// Threads: as the communicator.
class GraphCapture {
 public:
  virtual ~GraphCapture() = default;

  /// Calls `body`, which captures device work on the caller's current stream. The collectives that
  /// it calls become part of the graph, or are left out of a rehearsal. They run with each
  /// launch(), never by themselves: their Work can be waited for during capture, not tested.
  /// Collectives of host tensors, barrier, split and allocate throw Error during capture. The host
  /// first waits until the communicator's device work is done. Returns how many collectives were
  /// captured. Destroy the graphs before their communicator. Ranks: a rehearsal is local. A real
  /// capture is collective and returns once every rank has its graph; what `body` throws on one
  /// rank is thrown as the same Error on all, and ends the communicator if it has several ranks.
  virtual int64_t capture(CaptureKind kind, const CaptureWith& body) = 0;

  /// Calls `launch`, which launches a graph with that many collectives on the caller's stream. This
  /// is one call in the log, and the watchdog treats it as one collective. What `launch` throws
  /// ends the communicator. Ranks: collective. All ranks launch what they captured together;
  /// meanwhile no rank may call the collectives one by one.
  virtual void launch(int64_t collectives, const std::function<void()>& launch) = 0;
};

/// Why the collectives of this communicator cannot be captured; empty if they can.
std::string graph_capture_refusal(const Communicator& communicator);

/// The interface of this communicator's transport, which lives as long as the transport does.
/// Throws Error with graph_capture_refusal() where there is none.
GraphCapture& graph_capture(const Communicator& communicator);

}  // namespace lockstep::detail
