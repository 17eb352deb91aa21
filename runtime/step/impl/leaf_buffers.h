#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>

#include <vector>

namespace lockstep::detail {

/// With TrainerOptions::reproducible: the buffers of a model, such as BatchNorm statistics. Each
/// leaf starts with the buffers of the update before. Afterwards a floating-point buffer is the
/// mean of what the leaves made of it, and any other buffer is what leaf 0 made of it. Ranks:
/// merge() is collective, all else local. Threads: one.
class LeafBuffers {
 public:
  /// `leaves`: of this rank.
  LeafBuffers(std::vector<ModelTensor> buffers, Communicator communicator, int64_t leaves)
      : buffers_(std::move(buffers)), communicator_(std::move(communicator)), leaves_(leaves) {}

  /// Before the first leaf of a window.
  void begin();
  /// After each leaf: takes what the leaf made of the buffers, and puts back what they were.
  void end_leaf();
  /// After the last leaf of the window.
  void merge();
  /// Puts back what the buffers were, if a window is given up.
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
