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
  /// `host`: used by nobody else meanwhile.
  explicit CaptureAgreement(Communicator host);

  /// Throws CommunicationError once a rank has failed. Never blocks. Called wherever this rank
  /// waits for its peers during capture.
  void poll();
  /// Reports this rank's outcome (`error`: null if its capture succeeded) and waits until every
  /// rank has reported one or some rank has failed. Then throws the same Error on every rank if one
  /// failed; it quotes the ranks whose own capture failed.
  void finish(const std::exception_ptr& error);

 private:
  enum class State { capturing, done, failed };
  void post(State state);
  void read_round();

  Agreement host_;
  at::Tensor count_;  // of the ranks that are still capturing, and of those that failed
  Work round_;
  bool all_done_ = false;
  bool one_failed_ = false;
  bool saw_failure_ = false;  // this rank's own exception is only the consequence of another's
};

}  // namespace lockstep::detail
