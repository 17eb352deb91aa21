#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>

#include <exception>

namespace lockstep {

/// How ranks that record together come to one end: over the host, while NCCL may let each wait for
/// the others. In rounds, none of which they wait for while they record, all say whether they are
/// still recording, are done, or have failed; after the same round all know.
/// Ranks: one JointRecord on every rank. Threads: one. Errors: CommunicationError as the host's.
class JointRecord {
 public:
  /// `host`: for nobody else meanwhile.
  explicit JointRecord(Communicator host);

  /// Throws CommunicationError once a rank has failed. Never waits; called wherever this rank waits
  /// for others.
  void look();
  /// What this rank has come to. Waits until all have, or until one failed; then throws the same
  /// Error on every rank, which quotes those that failed by themselves.
  void finish(const std::exception_ptr& error);

 private:
  enum class State { recording, done, failed };
  void post(State state);
  void read_round();

  Communicator host_;
  at::Tensor count_;  // of the ranks that are still recording, and of those that failed
  Work round_;
  bool all_done_ = false;
  bool one_failed_ = false;
  bool told_ = false;  // what this rank throws from now on is no news
};

}  // namespace lockstep
