#include <lockstep/amp/update_block.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/update_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Compiled once for each instruction set: the compiler vectorises the loops for it.
HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {

template <typename Prepared>
HWY_INLINE void two_moments(const Prepared& prepared, const UpdateBlock& block) {
  const Prepared update = prepared;
  float* HWY_RESTRICT weight = block.weight;
  const float* HWY_RESTRICT gradient = block.gradient;
  float* HWY_RESTRICT m = block.moments[0];
  float* HWY_RESTRICT v = block.moments[1];
  for (int64_t i = 0; i < block.size; ++i) {
    weight[i] = update(weight[i], gradient[i], m[i], v[i]);
  }
}

void adamw_block(const AdamWUpdate::Prepared& update, const UpdateBlock& block) {
  two_moments(update, block);
}

void adam_block(const AdamUpdate::Prepared& update, const UpdateBlock& block) {
  two_moments(update, block);
}

void lamb_direction_block(const LambUpdate::Direction& update, const UpdateBlock& block) {
  two_moments(update, block);
}

void lamb_move_block(const LambUpdate::Move& update, const UpdateBlock& block) {
  two_moments(update, block);
}

template <typename Prepared>
HWY_INLINE void one_moment(const Prepared& prepared, const UpdateBlock& block) {
  const Prepared update = prepared;
  float* HWY_RESTRICT weight = block.weight;
  const float* HWY_RESTRICT gradient = block.gradient;
  float* HWY_RESTRICT moment = block.moments[0];
  for (int64_t i = 0; i < block.size; ++i) {
    weight[i] = update(weight[i], gradient[i], moment[i]);
  }
}

void momentum_block(const MomentumUpdate::Prepared& update, const UpdateBlock& block) {
  one_moment(update, block);
}

void lion_block(const LionUpdate::Prepared& update, const UpdateBlock& block) {
  one_moment(update, block);
}

void sgd_block(const SgdUpdate::Prepared& prepared, const UpdateBlock& block) {
  const SgdUpdate::Prepared update = prepared;
  float* HWY_RESTRICT weight = block.weight;
  const float* HWY_RESTRICT gradient = block.gradient;
  for (int64_t i = 0; i < block.size; ++i) {
    weight[i] = update(weight[i], gradient[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

HWY_EXPORT(adamw_block);
HWY_EXPORT(adam_block);
HWY_EXPORT(lamb_direction_block);
HWY_EXPORT(lamb_move_block);
HWY_EXPORT(lion_block);
HWY_EXPORT(momentum_block);
HWY_EXPORT(sgd_block);

void update_block(const AdamWUpdate::Prepared& update, const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(adamw_block)(update, block);
}
void update_block(const AdamUpdate::Prepared& update, const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(adam_block)(update, block);
}
void update_block(const MomentumUpdate::Prepared& update, const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(momentum_block)(update, block);
}
void update_block(const LambUpdate::Direction& update, const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(lamb_direction_block)(update, block);
}
void update_block(const LambUpdate::Move& update, const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(lamb_move_block)(update, block);
}
void update_block(const LionUpdate::Prepared& update, const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(lion_block)(update, block);
}
void update_block(const SgdUpdate::Prepared& update, const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(sgd_block)(update, block);
}

}  // namespace lockstep::amp
#endif
