#pragma once

#include <lockstep/runtime/agreement.h>
#include <lockstep/runtime/decisions.h>

#include <optional>

namespace lockstep {

/// Runs the consensus of a window: all ranks share their votes. A vote has the flags that the
/// devices measured and the host's fields (Word).
/// If decisions are made in host memory, both are reduced in one exchange, and all ranks know the
/// result at once. If decisions are made on a device, the devices reduce the flags. The votes of
/// the hosts stay in flight until the next window begins, so that no host waits for its device.
/// Ranks: every call is collective, except settle() when no votes are in flight.
class Consensus {
 public:
  Consensus(Communicator devices, Agreement agreement, HostActs acts)
      : devices_(std::move(devices)), agreement_(std::move(agreement)), acts_(acts) {}

  /// Shares this rank's vote. Afterwards the flags of `decisions` are those of all ranks. Returns
  /// the sum of all ranks' votes, or nothing if the votes are in flight.
  std::optional<Word> share(Word mine, Decisions& decisions);
  /// The two halves of share() where decisions are made on a device. share_flags(): the devices'
  /// part, which can be captured. post(): starts the exchange of the hosts' votes.
  void share_flags(const Decisions& decisions);
  void post(const Word& mine);
  /// Waits for the votes in flight and returns them, if there are any.
  std::optional<Word> settle();
  bool on_its_way() const { return on_its_way_; }

  Agreement& agreement() { return agreement_; }

 private:
  Communicator devices_;
  Agreement agreement_;
  HostActs acts_;
  bool on_its_way_ = false;
};

}  // namespace lockstep
