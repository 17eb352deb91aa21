#pragma once

#include <lockstep/amp/update/lamb_update.h>
#include <lockstep/amp/update/optimizer_list.h>

#include <cstdint>

namespace lockstep::amp {

/// A run of fp32 elements to update in place; arrays do not overlap.
struct UpdateBlock {
  float* weight;
  const float* gradient;
  float* moments[2];
  int64_t size;
};

/// The two passes of LAMB, each as an entry of the list.
struct LambDirectionPass {
  using Prepared = LambUpdate::Direction;
  using Double = LambUpdate::DoubleDirection;
};
struct LambMovePass {
  using Prepared = LambUpdate::Move;
  using Double = LambUpdate::DoubleMove;
};

#define LOCKSTEP_FOR_EACH_BLOCK_UPDATE(apply) \
  LOCKSTEP_FOR_EACH_UPDATE(apply)             \
  apply(LambDirectionPass) apply(LambMovePass)

/// Applies the functor to every element, with the widest vectors of the machine.
#define LOCKSTEP_DECLARE(Update) \
  void update_block(const Update::Prepared& update, const UpdateBlock& block);
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

}  // namespace lockstep::amp
