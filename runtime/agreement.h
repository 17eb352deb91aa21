#pragma once

#include <lockstep/collectives/communicator.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>

namespace lockstep {

/// The word that all ranks share about one update. Every field is a sum over ranks, so that words
/// of different purpose have one form and ranks that took different paths still meet.
struct Word {
  double overflow = 0;  // ranks that saw a non-finite gradient
  double error = 0;     // ranks that failed
  double stop = 0;      // ranks asked to stop
  double saved = 0;     // ranks whose share of a pending snapshot is on the disk
  double data = 0;      // micro-batches with data in this window
  double weight = 0;    // their weights
  double sums = 0;      // ranks whose loss is a Loss::sum
  double means = 0;     // ranks whose loss is a mean
  double diagnose = 0;  // ranks that asked for a diagnosis of the next overflow
  double rates = 0;     // a digest of the learning rates, and its square: equal on all ranks
  double rates_squared = 0;
  double nan_loss = 0;  // ranks whose loss is NaN before the first update
  double update = 0;    // updates made so far, and its square: equal on all ranks or an Error
  double update_squared = 0;
  double digest = 0;  // of a part of the state, and its square: equal on all ranks (ReplicaCheck)
  double digest_squared = 0;
};

/// What ranks tell each other on the control communicator. Ranks: every call is collective.
class Agreement {
 public:
  explicit Agreement(Communicator control) : control_(std::move(control)) {}

  /// The sum of all ranks' words. Throws Error on every rank if ranks are at different updates.
  Word exchange(const Word& mine);
  /// The same in two halves, so that nobody waits in between: one word on its way at a time.
  void post(const Word& mine);
  Word collect();

  /// True on every rank if it is on one.
  bool any(bool mine);

  /// Throws the same Error on every rank if any rank passes one; it quotes them all, and has the
  /// exit code of the first.
  void raise_if_any(const std::optional<Error>& mine);

  /// Runs `body`, which must not communicate; if it threw on any rank, throws the same Error on
  /// every rank.
  void attempt(const std::function<void()>& body);

  /// Throws the same Error on every rank; called when the word says that some rank failed.
  [[noreturn]] void raise(const std::optional<Error>& mine);

  /// The same from the rank that failed because of `cause`, which is nested in what it throws.
  [[noreturn]] void raise(const Error& mine, const std::exception_ptr& cause);

  Communicator& communicator() { return control_; }

 private:
  Communicator control_;
  at::Tensor posted_;
  Work on_its_way_;
  double posted_update_ = 0.0;
};

}  // namespace lockstep
