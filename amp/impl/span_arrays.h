#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/step_state.h>

#include <cstdint>

namespace lockstep::amp {

enum class Element : uint8_t { none, fp32, fp16, bf16, fp64 };

/// A flat array. In device memory it begins at a multiple of 16 bytes and is not fp64.
struct Elements {
  void* data = nullptr;
  Element type = Element::none;
};

/// The arrays of a FlatSpan, passed to kernels by value. T: the type of the arithmetic, double for
/// an fp64 master.
template <typename T>
struct SpanArrays {
  Elements gradient;
  Elements updated;              // the master; without one, the weight
  Elements copy;                 // the model's weight if there is a master
  Elements moments[2];           // as many as the optimizer has; T or bf16
  int16_t* remainder = nullptr;  // with `updated` in bf16
  T* average = nullptr;
  T average_rest = 0;
  bool rounds_randomly = false;
  uint64_t stream = 0;
  int64_t first_element = 0;
  int64_t size = 0;
  const double* learning_rate = nullptr;  // one element; null: the rule's
  const int64_t* missed = nullptr;        // one element, or null

  LOCKSTEP_HOST_DEVICE StepState step(const StepState& all) const {
    return own_step(all, learning_rate, missed);
  }

  /// True with a remainder, an average, random rounding or a bf16 moment.
  bool narrow() const {
    return remainder != nullptr || average != nullptr || rounds_randomly ||
           moments[0].type == Element::bf16 || moments[1].type == Element::bf16;
  }
};

/// The type for device code.
using UpdateArrays = SpanArrays<float>;

}  // namespace lockstep::amp
