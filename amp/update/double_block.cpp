#include <lockstep/amp/update/double_block.h>

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/update/double_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Compiled once for each instruction set: the compiler vectorises the loops for it.
HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {

template <typename Form>
HWY_INLINE void update_elements(const Form& form, const DoubleBlock& block) {
  const Form update = form;
  double* HWY_RESTRICT weight = block.weight;
  const double* HWY_RESTRICT gradient = block.gradient;
  double* HWY_RESTRICT first = block.moments[0];
  double* HWY_RESTRICT second = block.moments[1];
  for (int64_t i = 0; i < block.size; ++i) {
    if constexpr (std::is_invocable_v<Form, double, double, double&, double&>) {
      weight[i] = update(weight[i], gradient[i], first[i], second[i]);
    } else if constexpr (std::is_invocable_v<Form, double, double, double&>) {
      weight[i] = update(weight[i], gradient[i], first[i]);
    } else {
      weight[i] = update(weight[i], gradient[i]);
    }
  }
}

template <typename Form>
HWY_INLINE void move_each_moment(const Form& form, const DoubleBlock& block) {
  if constexpr (Form::kTakesRoots) {
    update_elements([form](double weight, double gradient, double& m,
                           double& v) { return form.moments(weight, gradient, m, v); },
                    block);
  }
}

void AverageBlock(double* HWY_RESTRICT average, const double* HWY_RESTRICT from, int64_t size,
                  double rest) {
  for (int64_t i = 0; i < size; ++i) {
    average[i] = lerp(average[i], from[i], rest);
  }
}

#undef LOCKSTEP_BLOCK
#define LOCKSTEP_BLOCK(Update)                                                  \
  void Update##_moments(const Update::Double& form, const DoubleBlock& block) { \
    move_each_moment(form, block);                                              \
  }                                                                             \
  void Update##_block(const Update::Double& form, const DoubleBlock& block) {   \
    update_elements(form, block);                                               \
  }
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_BLOCK)

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

#define LOCKSTEP_DISPATCH(Update)                                           \
  HWY_EXPORT(Update##_moments);                                             \
  void move_moments(const Update::Double& form, const DoubleBlock& block) { \
    HWY_DYNAMIC_DISPATCH(Update##_moments)(form, block);                    \
  }                                                                         \
  HWY_EXPORT(Update##_block);                                               \
  void update_block(const Update::Double& form, const DoubleBlock& block) { \
    HWY_DYNAMIC_DISPATCH(Update##_block)(form, block);                      \
  }
LOCKSTEP_FOR_EACH_BLOCK_UPDATE(LOCKSTEP_DISPATCH)

HWY_EXPORT(AverageBlock);
void move_towards(double* average, const double* from, int64_t size, double rest) {
  HWY_DYNAMIC_DISPATCH(AverageBlock)(average, from, size, rest);
}

}  // namespace lockstep::amp
#endif
