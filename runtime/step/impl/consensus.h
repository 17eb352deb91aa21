#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/runtime/process/impl/stop_signals.h>
#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/rate_check.h>
#include <lockstep/runtime/step/impl/training_storage.h>
#include <lockstep/runtime/step/impl/votes.h>

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// The hosts' half of no. 4 in the order of a step (docs/architecture.md): their votes are
/// all-reduced by the control communicator, without blocking; on a device they are read when the
/// next window begins. The other half, overflow and failure, is that of Measures.
///
/// No vote enters Decisions::decide(). If a rank failed, or ranks differ in what must be equal, the
/// votes end the window with an Error on every rank. What else they ask for (to stop, to diagnose,
/// the next phase of a save) is done after the update.
///
/// Ranks: calls are collective unless they say "local". Threads: one; request_stop(): any.
class Consensus {
 public:
  Consensus(Communicator devices, Agreement agreement, TrainingStorage& storage, HostActs acts)
      : devices_(std::move(devices)),
        agreement_(std::move(agreement)),
        storage_(storage),
        acts_(acts) {}
  /// Settles the votes in flight, since a rank that failed in the last window waits until they are
  /// read. Prints an error instead of throwing it.
  ~Consensus();
  Consensus(const Consensus&) = delete;
  Consensus& operator=(const Consensus&) = delete;

  /// Completes the votes of this rank in window number `window`, skipped ones included: stop,
  /// diagnosis, learning rates. Local.
  Votes complete(Votes mine, const Decisions& decisions, int64_t window);
  /// Adds the digest of the replicas and starts the all-reduce of the votes. One at a time.
  void post(Votes mine, int64_t window);
  /// Waits for the votes in flight, if any, and acts on them. Throws the same Error on every rank
  /// if some rank failed, or if ranks differ in learning rates or weights.
  void settle();
  /// Waits for the votes in flight and ignores them: this rank failed.
  void discard();
  bool in_flight() const { return posted_.has_value(); }
  /// The sums of the votes that settle() received last, returned once. Local.
  std::optional<Votes> take() { return std::exchange(received_, std::nullopt); }

  void request_stop() noexcept { stop_here_.store(true, std::memory_order_relaxed); }
  /// These signals request a stop from now on, in place of those of an earlier call.
  void stop_on_signals(const std::vector<int>& signals);
  /// True on every rank after any rank was asked to stop.
  bool stop_requested() const { return stop_everywhere_; }
  /// Asks all ranks to diagnose the first overflow after the next update.
  void diagnose_next_overflow() { diagnose_here_ = true; }
  /// Call it when an update was decided: this rank's request has reached the others.
  void forget_own_request() { diagnose_here_ = false; }
  /// True if a rank asked for a diagnosis; once.
  bool take_diagnosis() { return std::exchange(diagnose_everywhere_, false); }

 private:
  Communicator devices_;
  Agreement agreement_;
  TrainingStorage& storage_;
  HostActs acts_;
  RateCheck rate_check_;
  std::atomic<bool> stop_here_{false};
  std::optional<StopSignals> stop_signals_;
  bool stop_everywhere_ = false;
  bool diagnose_here_ = false;
  bool diagnose_everywhere_ = false;
  std::optional<PostedVotes> posted_;
  std::optional<Votes> received_;
};

}  // namespace lockstep::detail
