#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/non_finite.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/reducer.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Finds out where an overflow came from. Armed, it replays each micro-batch before the real one,
/// with observers (amp::NonFiniteTracer): once at the loss scale in use and once at scale 1, on
/// copies of the buffers and from the same random numbers, so that the real step is not changed. If
/// the window's update is then skipped, the ranks share what they found. Costs nothing while it is
/// not armed.
class NonFiniteDiagnosis {
 public:
  /// `folder`: where rank r writes the batch of the bad micro-batch; empty: nowhere.
  /// `reproducible`: TrainerOptions::reproducible(), with which gradients have a limit.
  NonFiniteDiagnosis(Model model, Precision precision, const std::string& folder,
                     bool reproducible);

  void arm() { armed_ = true; }
  bool armed() const { return armed_; }

  /// Replays one micro-batch; `forward` is the closure under autocast. `factor`: what gradients are
  /// multiplied with when packed for the wire. Ranks: local, unless forward itself communicates.
  void replay(const std::function<Loss()>& forward, double scale, double factor,
              int64_t micro_batch);
  /// After a skipped update. Collective. Disarms; text() says what was found.
  void conclude(const Reducer& reducer, const Agreement& agreement, int64_t update, double scale);
  /// After an update was decided: conclude() if it was skipped, else forgets the replays. Does
  /// nothing while disarmed; else waits for the device.
  void conclude_window(const DecisionCopy& decision, const Reducer& reducer,
                       const Agreement& agreement);
  /// Forgets the replays of a window.
  void forget();
  /// Explains this rank's NaN loss before the first update. Calls `replay` first, which replays the
  /// micro-batch at hand if that is possible. Local. Forgets the replay and disarms.
  std::string of_first_loss(const std::function<void()>& replay, int rank);
  /// Makes `text`, that of an Error on all ranks, the conclusion. The same on every rank.
  void note(std::string text) {
    text_ = std::move(text);
    ranks_.clear();
  }

  /// The last conclusion, the same on every rank; empty if there was none.
  const std::string& text() const { return text_; }
  /// The ranks that found something of their own; may be none.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  /// What is not finite, too large for reproducible sums (limit), or too large for the wire.
  enum class Fault { none, op, loss, scaled_loss, gradient, limit, wire };
  /// One replayed forward and backward.
  struct Replay {
    Fault fault = Fault::none;
    std::optional<amp::NonFinite> first;
    std::string text;  // of the fault
    std::vector<at::Tensor> batch;
    std::string cure;  // of Fault::limit
  };
  struct Found {
    int64_t micro_batch;
    std::string text;
    std::vector<at::Tensor> batch;
  };
  Replay trace(const std::function<Loss()>& forward, double scale, double factor) const;
  void judge_gradient(const std::string& name, const at::Tensor& gradient, double scale,
                      double factor, Replay& result) const;
  std::string verdict(const Replay& replay) const;
  std::string not_finite_in_model() const;
  std::string save_batch(int rank, int64_t update) const;

  Model model_;
  Precision precision_;
  std::string folder_;
  bool reproducible_;
  bool armed_ = false;
  bool replayed_ = false;
  std::optional<Found> found_;
  std::string text_;
  std::vector<int> ranks_;
};

}  // namespace lockstep::detail
