#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/non_finite.h>
#include <lockstep/amp/precision.h>
#include <lockstep/runtime/agreement.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/reducer.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Finds out where an overflow came from. Armed, it replays each micro-batch before the real one,
/// with observers (amp::NonFiniteTracer): once at the loss scale in use and once at scale 1, on
/// copies of the buffers and from the same random numbers, so that the real step is not changed.
/// If the window's update is then skipped, the ranks put together what each of them found.
/// Costs nothing while it is not armed.
class NonFiniteDiagnosis {
 public:
  /// `folder`: where rank r writes the batch of the bad micro-batch; empty: nowhere.
  NonFiniteDiagnosis(Model model, Precision precision, std::string folder);

  void arm() { armed_ = true; }
  bool armed() const { return armed_; }

  /// Replays one micro-batch; `forward` is the closure under autocast. `factor`: what gradients are
  /// multiplied with when packed for the wire. Ranks: local, unless forward itself communicates.
  void replay(const std::function<Loss()>& forward, double scale, double factor,
              int64_t micro_batch);
  /// After a skipped update. Collective. Disarms; text() says what was found.
  void conclude(const Reducer& reducer, Agreement& agreement, int64_t update, double scale);
  /// After an update that was made: forgets its replays.
  void forget();

  /// The last conclusion, the same on every rank; empty if there was none.
  const std::string& text() const { return text_; }

 private:
  /// One replayed forward and backward.
  struct Replay {
    std::optional<amp::NonFinite> first;
    std::string gradient;  // what is wrong with a gradient where no operator was at fault
    std::vector<at::Tensor> batch;
    bool clean() const { return !first && gradient.empty(); }
  };
  struct Found {
    int64_t micro_batch;
    std::string text;
    std::vector<at::Tensor> batch;
  };
  Replay trace(const std::function<Loss()>& forward, double scale, double factor) const;
  std::string gradient_problem(const std::string& name, const at::Tensor& gradient,
                               double factor) const;
  std::string save_batch(int rank, int64_t update) const;

  Model model_;
  Precision precision_;
  std::string folder_;
  bool armed_ = false;
  bool replayed_ = false;
  std::optional<Found> found_;
  std::string text_;
};

}  // namespace lockstep
