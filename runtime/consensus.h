#pragma once

#include <lockstep/runtime/agreement.h>
#include <lockstep/runtime/decisions.h>

#include <optional>

namespace lockstep {

/// Step 4 of the order: the ranks share what they saw of a window, and what their hosts have to
/// say. Where decisions are made in host memory both travel in one word, and all ranks know at
/// once. Where they are made on a device, the flags travel between the devices, and the hosts' word
/// is on its way until the next window begins, so that no host waits for its device. Ranks: every
/// call is collective, but for settle() where nothing is on its way.
class Consensus {
 public:
  Consensus(Communicator devices, Agreement agreement, HostActs acts)
      : devices_(std::move(devices)), agreement_(std::move(agreement)), acts_(acts) {}

  /// Afterwards the flags of `decisions` are those of all ranks. Returns all ranks' word, or none
  /// if it is on its way.
  std::optional<Word> share(Word mine, Decisions& decisions);
  /// The two halves of it where decisions are made on a device: what the devices do, which can be
  /// recorded, and the hosts' word.
  void share_flags(const Decisions& decisions);
  void post(const Word& mine);
  /// The word on its way, if there is one.
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
