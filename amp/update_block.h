#pragma once

#include <lockstep/amp/adam_update.h>
#include <lockstep/amp/adamw_update.h>
#include <lockstep/amp/lamb_update.h>
#include <lockstep/amp/lion_update.h>
#include <lockstep/amp/sgd_update.h>

#include <cstdint>

namespace lockstep::amp {

/// A run of fp32 elements to update in place; arrays do not overlap.
struct UpdateBlock {
  float* weight;
  const float* gradient;
  float* moments[2];
  int64_t size;
};

/// Applies the functor to every element, with the widest vectors of the machine.
void update_block(const AdamWUpdate::Prepared& update, const UpdateBlock& block);
void update_block(const AdamUpdate::Prepared& update, const UpdateBlock& block);
void update_block(const LambUpdate::Direction& update, const UpdateBlock& block);
void update_block(const LambUpdate::Move& update, const UpdateBlock& block);
void update_block(const LionUpdate::Prepared& update, const UpdateBlock& block);
void update_block(const SgdUpdate::Prepared& update, const UpdateBlock& block);
void update_block(const MomentumUpdate::Prepared& update, const UpdateBlock& block);

}  // namespace lockstep::amp
