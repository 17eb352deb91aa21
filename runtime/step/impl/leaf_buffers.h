#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>

#include <vector>

namespace lockstep::detail {

/// With TrainerOptions::reproducible: merges the buffers of a model, such as BatchNorm statistics.
/// Each leaf starts with the buffers of the update before. At the end of the window a
/// floating-point buffer becomes the mean over all leaves, and any other buffer becomes that of
/// leaf 0. Ranks: merge() is collective, all else local. Threads: one.
class LeafBuffers {
 public:
  /// `leaves`: the number of leaves of this rank.
  LeafBuffers(std::vector<ModelTensor> buffers, Communicator communicator, int64_t leaves)
      : buffers_(std::move(buffers)), communicator_(std::move(communicator)), leaves_(leaves) {}

  /// Saves the buffers. Call it before the first leaf of a window.
  void begin();
  /// Call it after each leaf: takes the buffers of the leaf, and restores the saved ones.
  void end_leaf();
  /// Merges the buffers of all leaves. Call it after the last leaf of the window.
  void merge();
  /// Restores the saved buffers of a window that is given up.
  void abandon();

 private:
  struct Group;
  std::vector<char> changed_anywhere() const;
  void merge(Group& group) const;

  std::vector<ModelTensor> buffers_;
  Communicator communicator_;
  int64_t leaves_;
  std::vector<at::Tensor> before_;             // empty outside of a window
  std::vector<std::vector<at::Tensor>> made_;  // leaf, buffer; undefined where unchanged
};

}  // namespace lockstep::detail
