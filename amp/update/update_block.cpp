#include <lockstep/amp/update/update_block.h>

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/update/update_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Compiled once for each instruction set: the compiler vectorises the loops for it.
HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {

template <typename Prepared>
HWY_INLINE void update_elements(const Prepared& prepared, const UpdateBlock& block) {
  const Prepared update = prepared;
  float* HWY_RESTRICT weight = block.weight;
  const float* HWY_RESTRICT gradient = block.gradient;
  float* HWY_RESTRICT first = block.moments[0];
  float* HWY_RESTRICT second = block.moments[1];
  for (int64_t i = 0; i < block.size; ++i) {
    if constexpr (std::is_invocable_v<Prepared, float, float, float&, float&>) {
      weight[i] = update(weight[i], gradient[i], first[i], second[i]);
    } else if constexpr (std::is_invocable_v<Prepared, float, float, float&>) {
      weight[i] = update(weight[i], gradient[i], first[i]);
    } else {
      weight[i] = update(weight[i], gradient[i]);
    }
  }
}

#undef LOCKSTEP_BLOCK
#define LOCKSTEP_BLOCK(Update)                                                      \
  void Update##_block(const Update::Prepared& prepared, const UpdateBlock& block) { \
    update_elements(prepared, block);                                               \
  }
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_BLOCK)

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

#define LOCKSTEP_DISPATCH(Update)                                               \
  HWY_EXPORT(Update##_block);                                                   \
  void update_block(const Update::Prepared& update, const UpdateBlock& block) { \
    HWY_DYNAMIC_DISPATCH(Update##_block)(update, block);                        \
  }
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_DISPATCH)

}  // namespace lockstep::amp
#endif
