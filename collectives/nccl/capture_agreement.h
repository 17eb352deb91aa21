#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/impl/agreement.h>

#include <exception>

namespace lockstep::detail {

/// Agrees on the outcome of a graph capture that all ranks make together. During capture NCCL may
/// block a rank on its peers, so ranks report their state (capturing, done, failed) in non-blocking
/// all-reduces on the host; all ranks learn the outcome in the same round.
/// Ranks: one CaptureAgreement on every rank. Threads: one. Errors: CommunicationError as the host
/// communicator's.
class CaptureAgreement {
 public:
  /// `host`: not used for anything else meanwhile.
  explicit CaptureAgreement(Communicator host);

  /// Throws CommunicationError once a rank has failed. Never blocks. Called wherever this rank
  /// waits for its peers during capture.
  void poll();
  /// Reports this rank's outcome (`error`: null for success) and waits until all ranks are done or
  /// one has failed. If one failed, throws the same Error on every rank; it quotes those whose own
  /// capture failed.
  void finish(const std::exception_ptr& error);

 private:
  enum class State { capturing, done, failed };
  void post(State state);
  void read_round();

  Agreement host_;
  at::Tensor count_;  // ranks that are still capturing; ranks that failed
  Work round_;
  bool all_done_ = false;
  bool one_failed_ = false;
  bool saw_failure_ = false;  // poll() threw: this rank's exception is a consequence
};

}  // namespace lockstep::detail
