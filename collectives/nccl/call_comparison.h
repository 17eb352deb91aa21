#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/collective_call.h>

#include <deque>
#include <optional>

namespace lockstep::detail {

/// Compares over the host what the ranks call on a device communicator, and lets them go on
/// meanwhile. Per call one all-reduce of 16 bytes, whatever the number of ranks: the greatest and
/// the least digest of the ranks' calls. Only where these differ, the ranks gather the calls
/// themselves. Ranks: the constructor and announce() are collective. Errors: Error with every
/// rank's call when they differ, on every rank; CommunicationError as the host's. Threads: one.
class CallComparison {
 public:
  CallComparison(const Communicator& host, CollectiveCheck check);

  void announce(const CollectiveCall& call);
  /// Looks at the calls that every rank has announced by now. Never waits.
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
  std::optional<Communicator> calls_;  // apart: ranks notice a difference after different digests
  std::deque<Pending> pending_;
  std::optional<Differing> differing_;
};

}  // namespace lockstep::detail
