#pragma once

#include <lockstep/amp/impl/lamb_update.h>
#include <lockstep/amp/impl/optimizer_list.h>

#include <cstdint>

namespace lockstep::amp {

/// Adjacent elements to update in place; the arrays do not overlap.
template <typename T>
struct UpdateBlock {
  T* weight;
  const T* gradient;
  T* moments[2];
  int64_t size;
};

/// The two passes of LAMB, each as an entry of the list.
struct LambDirectionPass {
  template <typename T>
  using Prepared = LambUpdate::Direction<T>;
};
struct LambMovePass {
  template <typename T>
  using Prepared = LambUpdate::Move<T>;
};

#define LOCKSTEP_FOR_EACH_BLOCK_UPDATE(apply) \
  LOCKSTEP_FOR_EACH_UPDATE(apply)             \
  apply(LambDirectionPass) apply(LambMovePass)

/// update_block() applies the call operator to every element; move_moments() is the first pass of
/// functors with kTakesRoots. Both use the widest vectors of the machine.
#define LOCKSTEP_DECLARE(Update)                                                               \
  void update_block(const Update::Prepared<float>& update, const UpdateBlock<float>& block);   \
  void update_block(const Update::Prepared<double>& update, const UpdateBlock<double>& block); \
  void move_moments(const Update::Prepared<double>& update, const UpdateBlock<double>& block);
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

}  // namespace lockstep::amp
