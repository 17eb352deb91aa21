#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/core/collective_call.h>

#include <deque>

namespace lockstep::detail {

/// Compares over the host what the ranks call on a device communicator, and lets them go on
/// meanwhile. Ranks: announce() is collective. Errors: Error with every rank's call when they
/// differ, on every rank; CommunicationError as the host's. Threads: one.
class CallComparison {
 public:
  CallComparison(Communicator host, CollectiveCheck check);

  void announce(const CollectiveCall& call);
  /// Looks at the calls that every rank has announced by now.
  void look();
  /// Waits until every rank has announced all calls up to this number.
  void require(uint64_t sequence);

 private:
  struct Pending {
    CollectiveCall call;
    at::Tensor own;
    at::Tensor all;
    Work gathering;
  };
  void compare_oldest();

  Communicator host_;
  bool on_;
  std::deque<Pending> pending_;
};

}  // namespace lockstep::detail
