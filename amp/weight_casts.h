#pragma once

namespace lockstep::amp {

/// Autocast's weight cache for layers that transpose their weight, such as C++ torch::nn::Linear:
/// it multiplies with weight.t(), a view, which the cache of autocast does not take, so LibTorch
/// casts the weight on every call (the Linear of Python hands over the weight itself). While an
/// object of this class lives and autocast is on, t() of an fp32 parameter is the transpose of its
/// cached cast: one cast for each region, with the forward bits that it has without. Where a weight
/// is used several times, its gradients are added in the autocast dtype, as in Python.
/// amp::Autocast has one. Threads: acts on the calling thread only. Ranks: local.
class CachedTransposes {
 public:
  CachedTransposes();
  ~CachedTransposes();
  CachedTransposes(const CachedTransposes&) = delete;
  CachedTransposes& operator=(const CachedTransposes&) = delete;

 private:
  bool previous_;
};

/// Keeps what autocast has cast in its cache, across the regions within its life, and clears it at
/// the end. For a window of micro-batches between two updates: weights must not change meanwhile.
/// Threads: made and destroyed on the thread of those regions. Ranks: local.
class WeightCastScope {
 public:
  WeightCastScope();
  ~WeightCastScope();
  WeightCastScope(const WeightCastScope&) = delete;
  WeightCastScope& operator=(const WeightCastScope&) = delete;
};

}  // namespace lockstep::amp
