#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/collective_call.h>

#include <deque>
#include <optional>

namespace lockstep::detail {

/// Compares over the host the calls of all ranks on a device communicator, without blocking. Each
/// call costs one all-reduce of 16 bytes: the largest and the smallest digest of the ranks' calls.
/// Only if these differ, the ranks gather the calls. Ranks: the constructor and announce() are
/// collective. Errors: on every rank Error with all calls if they differ; CommunicationError as the
/// host's. Threads: one.
class CallComparison {
 public:
  CallComparison(const Communicator& host, CollectiveCheck check);

  void announce(const CollectiveCall& call);
  /// Compares the calls that every rank has announced by now. Never waits.
  void look();
  /// Waits until every rank has announced all calls up to this number.
  void require(uint64_t sequence);

 private:
  struct Pending {
    CollectiveCall call;
    at::Tensor extremes;  // of the digest d: d, then ~d; reduced to the maxima of both
    Work reducing;
  };
  struct Differing {
    CollectiveCall call;
    at::Tensor own;
    at::Tensor all;
    Work gathering;
  };
  void compare_oldest();
  [[noreturn]] void raise();

  bool on_;
  Communicator digests_;
  std::optional<Communicator> calls_;  // separate: ranks detect a difference at different times
  std::deque<Pending> pending_;
  std::optional<Differing> differing_;
};

}  // namespace lockstep::detail
