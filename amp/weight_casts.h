#pragma once

#include <c10/core/TensorImpl.h>

#include <unordered_set>

namespace lockstep::amp {

/// Shares the casts of fp32 weights that autocast makes on this thread, in place of LibTorch's
/// cache, which compares no versions and goes on with the old weights after an update.
/// amp::Autocast has one.
///
/// A weight is cast once for each graph, however often the graph uses it. It is cast anew once
/// backward has run through the cast, once the results that were computed with it are gone, and as
/// soon as the weight has another version or other memory: so every optimizer's update is seen, and
/// so is a write by hand. Without autograd a weight is cast at each use. Views of a weight count as
/// weights: C++ torch::nn::Linear multiplies with weight.t(), which LibTorch casts on every call.
/// The forward's bits are those of LibTorch. Where a weight is used several times, its gradients
/// are added in the autocast dtype, as in Python.
/// Threads: acts on the calling thread only. Ranks: local.
class SharedWeightCasts {
 public:
  explicit SharedWeightCasts(bool enabled);
  ~SharedWeightCasts();
  SharedWeightCasts(const SharedWeightCasts&) = delete;
  SharedWeightCasts& operator=(const SharedWeightCasts&) = delete;

  /// Forgets this thread's casts.
  static void clear();

 private:
  bool previous_cache_;
};

using WeightSet = std::unordered_set<const c10::TensorImpl*>;

/// Keeps the casts of `weights` across the regions and backwards within its life, and forgets all
/// casts at the end. For a window of micro-batches between two updates of these weights: meanwhile
/// only writes that give them another version or other memory are seen. The casts of other weights
/// are shared as by SharedWeightCasts. `weights` outlives the object.
/// Threads: made and destroyed on the thread of those regions. Ranks: local.
class WeightCastScope {
 public:
  explicit WeightCastScope(const WeightSet& weights);
  ~WeightCastScope();
  WeightCastScope(const WeightCastScope&) = delete;
  WeightCastScope& operator=(const WeightCastScope&) = delete;

 private:
  const WeightSet* weights_;
};

}  // namespace lockstep::amp
