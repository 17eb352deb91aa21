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

template <typename Functor, typename T>
HWY_INLINE void update_elements(const Functor& functor, const UpdateBlock<T>& block) {
  const Functor update = functor;
  T* HWY_RESTRICT weight = block.weight;
  const T* HWY_RESTRICT gradient = block.gradient;
  T* HWY_RESTRICT first = block.moments[0];
  T* HWY_RESTRICT second = block.moments[1];
  for (int64_t i = 0; i < block.size; ++i) {
    if constexpr (std::is_invocable_v<Functor, T, T, T&, T&>) {
      weight[i] = update(weight[i], gradient[i], first[i], second[i]);
    } else if constexpr (std::is_invocable_v<Functor, T, T, T&>) {
      weight[i] = update(weight[i], gradient[i], first[i]);
    } else {
      weight[i] = update(weight[i], gradient[i]);
    }
  }
}

template <typename Prepared, typename T>
HWY_INLINE void move_each_moment(const Prepared& update, const UpdateBlock<T>& block) {
  if constexpr (Prepared::kTakesRoots) {
    update_elements([update](T weight, T gradient, T& m,
                             T& v) { return update.move_moments(weight, gradient, m, v); },
                    block);
  }
}

#undef LOCKSTEP_BLOCK
#define LOCKSTEP_BLOCK(Update)                                                                   \
  void Update##_floats(const Update::Prepared<float>& update, const UpdateBlock<float>& block) { \
    update_elements(update, block);                                                              \
  }                                                                                              \
  void Update##_doubles(const Update::Prepared<double>& update,                                  \
                        const UpdateBlock<double>& block) {                                      \
    update_elements(update, block);                                                              \
  }                                                                                              \
  void Update##_moments(const Update::Prepared<double>& update,                                  \
                        const UpdateBlock<double>& block) {                                      \
    move_each_moment(update, block);                                                             \
  }
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_BLOCK)

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

#define LOCKSTEP_DISPATCH(Update)                                                               \
  HWY_EXPORT(Update##_floats);                                                                  \
  void update_block(const Update::Prepared<float>& update, const UpdateBlock<float>& block) {   \
    HWY_DYNAMIC_DISPATCH(Update##_floats)(update, block);                                       \
  }                                                                                             \
  HWY_EXPORT(Update##_doubles);                                                                 \
  void update_block(const Update::Prepared<double>& update, const UpdateBlock<double>& block) { \
    HWY_DYNAMIC_DISPATCH(Update##_doubles)(update, block);                                      \
  }                                                                                             \
  HWY_EXPORT(Update##_moments);                                                                 \
  void move_moments(const Update::Prepared<double>& update, const UpdateBlock<double>& block) { \
    HWY_DYNAMIC_DISPATCH(Update##_moments)(update, block);                                      \
  }
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_DISPATCH)

}  // namespace lockstep::amp
#endif
