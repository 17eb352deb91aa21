#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/TensorImpl.h>

#include <unordered_set>

namespace lockstep::amp {

/// Shares the casts of fp32 weights that autocast makes on this thread. Replaces LibTorch's cache,
/// which does not compare versions and so returns old weights after an update. A member of
/// amp::Autocast.
///
/// A weight is cast once per graph, however often the graph uses it. The weight is cast again once
/// backward has run through the cast, once the results computed with the cast are gone, or as soon
/// as the weight has another version or other memory. So every update of an optimizer is seen, and
/// so is a manual write. Without autograd a weight is cast at each use. A view of a weight counts
/// as a weight: C++ torch::nn::Linear multiplies with weight.t(), which LibTorch casts in every
/// call.
/// The forward has the same bits as LibTorch's. Where a weight is used several times, its gradients
/// are added in the autocast dtype, as in Python.
/// Threads: acts on the calling thread only. Ranks: local.
class SharedWeightCasts {
 public:
  [[nodiscard]] explicit SharedWeightCasts(bool enabled);
  ~SharedWeightCasts();
  SharedWeightCasts(const SharedWeightCasts&) = delete;
  SharedWeightCasts& operator=(const SharedWeightCasts&) = delete;

  /// Drops this thread's casts.
  static void clear();

 private:
  bool previous_cache_;
};

using WeightSet = std::unordered_set<const c10::TensorImpl*>;

/// Keeps the casts of `weights` across autocast regions and backwards for its lifetime; the
/// destructor drops all casts of the thread. For a window of micro-batches between two updates of
/// these weights: during the window, only writes that give a weight another version or other memory
/// are seen. Casts of other weights are shared as by SharedWeightCasts. `weights` must outlive the
/// object.
/// Threads: make and destroy it on the thread of those regions. Ranks: local.
class WeightCastScope {
 public:
  [[nodiscard]] explicit WeightCastScope(const WeightSet& weights);
  ~WeightCastScope();
  WeightCastScope(const WeightCastScope&) = delete;
  WeightCastScope& operator=(const WeightCastScope&) = delete;

 private:
  const WeightSet* weights_;
};

}  // namespace lockstep::amp
