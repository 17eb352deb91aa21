#pragma once

#include "guarded_memory.h"
#include "spans.h"

#include <memory>

namespace lockstep::testing {

inline at::Tensor guarded(at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  const auto memory = std::make_shared<GuardedMemory>(bytes);
  return at::from_blob(
      memory->data(), sizes, [memory](void*) {}, dtype);
}

inline at::Tensor guarded_copy(const at::Tensor& values) {
  return values.defined() ? guarded(values.sizes(), values.scalar_type()).copy_(values) : values;
}

inline amp::FlatSpan guarded_copy(const amp::FlatSpan& span) {
  amp::FlatSpan result = span;
  for (at::Tensor* array :
       {&result.gradient, &result.master, &result.weight, &result.remainder, &result.average}) {
    *array = guarded_copy(*array);
  }
  for (at::Tensor& moment : result.moments) {
    moment = guarded_copy(moment);
  }
  return result;
}

}  // namespace lockstep::testing
