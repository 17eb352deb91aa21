#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/saving/impl/training_state.h>

#include <functional>
#include <optional>
#include <string>

namespace lockstep::detail {

struct TrainerImpl;

/// Runs trials with a Trainer and undoes their updates: copies the training state to host memory
/// and restores it bit for bit. While it lives, a schedule that is a function is not called and no
/// snapshots in memory are saved. Ranks: every call is collective. Threads: one.
class KeptTraining {
 public:
  /// `call`: the public function that makes trials, for errors. Throws the same Error on every rank
  /// within a window, with TrainerOptions::digest_log or local_updates, and if the state of a rank
  /// cannot be read.
  KeptTraining(TrainerImpl& trainer, const std::string& call);
  /// Restores the state unless give_back() or forget() was called. Local, since an exception of
  /// this rank alone may lead here.
  ~KeptTraining();
  KeptTraining(const KeptTraining&) = delete;
  KeptTraining& operator=(const KeptTraining&) = delete;

  /// Runs a trial and restores the state. Returns why it failed, the same on every rank, or
  /// nothing.
  std::optional<Error> attempt(const std::function<void()>& trial);
  /// Drops a window that is not complete, and restores the state. May be called again after more
  /// trials.
  void restore();
  /// Sets the rates of all groups so that the next update is made with `rate`, whatever the
  /// schedule. False if no rate can do that, because the schedule's factor is 0.
  bool set_learning_rate(double rate);
  /// The last restore(): the Trainer goes on as if there had been no trials. Throws the same Error
  /// on every rank if a rank failed in the last window.
  void give_back();
  /// Call it when a peer is lost: then nothing can be restored. Local.
  void forget() { ended_ = true; }

  /// Throws Error for options under which trials of other batch sizes cannot be undone.
  static void require_any_size(const TrainerOptions& options, const std::string& call);
  const TrainerOptions& options() const;

 private:
  TrainerImpl& trainer_;
  StateInMemory state_;
  bool ended_ = false;
};

}  // namespace lockstep::detail
