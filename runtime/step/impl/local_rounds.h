#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/local_updates.h>
#include <lockstep/runtime/step/impl/replicated_array.h>
#include <lockstep/runtime/step/impl/updater.h>
#include <lockstep/runtime/storage/impl/arena.h>

#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// The rounds of LocalUpdates: the weights with which the round began, which are equal on all ranks
/// (the anchors), the momentum of the outer step, and the exchange at the end of a round.
///
/// A round is counted in windows, which the hosts of all ranks count alike, so no host waits for
/// its device. Ranks: end_update() and finish() are collective in the window that ends a round; the
/// rest is local. Threads: one.
class LocalRounds {
 public:
  /// `devices`: all ranks. The exchange uses the reducer's wires, which are free between windows.
  /// Throws Error if weights are kept in 16 bits without a master.
  LocalRounds(LocalUpdates options, Communicator devices, Arena& arena, const Reducer& reducer,
              Updater& updater);

  /// Counts an update of this rank's weights; after the last one of a round, exchanges them.
  /// Returns the seconds that the exchange took, by the host's clock.
  double end_update();
  /// Ends the round now; does nothing if no update was made since the last exchange.
  void finish();
  /// Starts a round from the weights, which must be equal on all ranks. Outer momentum stays.
  void restart();
  /// After a resume: sets how many updates of the round this rank's weights contain.
  void go_on(int64_t updates) { updates_of_round_ = updates; }
  /// Drops this rank's updates since the last exchange.
  void go_back();

  /// One flat array for each bucket: fp32, or fp64. Equal on all ranks.
  const std::vector<at::Tensor>& anchors() const { return anchors_; }
  /// Updates since the last exchange.
  int64_t updates_of_round() const { return updates_of_round_; }
  /// The anchors and momenta by parameter: all ranks hold them with the same bits.
  std::vector<ReplicatedArray> shared() const;
  /// True if ranks may hold different weights or moments now.
  bool ranks_differ() const { return updates_of_round_ > 0 || !options_.average_moments(); }
  int64_t bytes() const;

  /// Visits what all ranks share: the outer momentum of each parameter, and the count. A snapshot
  /// without momentum, from a synchronous run, makes it 0.
  void visit_state(StateArchive& archive);

 private:
  void outer_step(size_t bucket, const at::Tensor& gradient);
  void average_moments();

  LocalUpdates options_;
  Communicator devices_;
  Arena& arena_;
  const Reducer& reducer_;
  Updater& updater_;
  std::vector<at::Tensor> anchors_;
  std::vector<at::Tensor> momenta_;  // empty without outer momentum
  int64_t updates_of_round_ = 0;
};

}  // namespace lockstep::detail
