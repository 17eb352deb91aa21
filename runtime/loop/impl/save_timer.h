#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

#include <functional>

namespace lockstep::detail {

/// Says when a snapshot is due by time, alike on every rank: the clock of rank 0 decides.
class SaveTimer {
 public:
  /// `ranks`: a communicator on the host. `every`: seconds; 0: never due. `clock`: seconds since
  /// any moment; null: a steady clock.
  SaveTimer(Communicator ranks, double every, std::function<double()> clock = nullptr);

  /// Whether `every` seconds are over since restart() or construction. Collective, unless `every`
  /// is 0.
  bool is_due() const;
  /// A snapshot was saved. Local.
  void restart() { since_ = clock_(); }

 private:
  Communicator ranks_;
  double every_;
  std::function<double()> clock_;
  double since_;
};

}  // namespace lockstep::detail
