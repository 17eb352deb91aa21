#include <lockstep/amp/cuda/span_arrays.h>
#include <lockstep/amp/update/flat_span.h>
#include <lockstep/collectives/error.h>

namespace lockstep::amp {
namespace {

Element element_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return Element::fp32;
    case c10::ScalarType::Half:
      return Element::fp16;
    case c10::ScalarType::BFloat16:
      return Element::bf16;
    default:
      throw Error(c10::str("kernels in device memory know Float, Half and BFloat16, not ", dtype));
  }
}

}  // namespace

Elements elements_of(const at::Tensor& flat) {
  return {const_cast<void*>(flat.const_data_ptr()), element_of(flat.scalar_type())};
}

UpdateArrays arrays_of(const FlatSpan& span) {
  UpdateArrays arrays;
  arrays.gradient = elements_of(span.gradient);
  arrays.updated = elements_of(updated_array(span));
  if (span.master.defined() && span.weight.defined()) {
    arrays.copy = elements_of(span.weight);
  }
  for (size_t m = 0; m < span.moments.size(); ++m) {
    arrays.moments[m] = elements_of(span.moments[m]);
  }
  if (span.remainder.defined()) {
    arrays.remainder = span.remainder.mutable_data_ptr<int16_t>();
  }
  if (span.average.defined()) {
    arrays.average = span.average.mutable_data_ptr<float>();
    arrays.average_rest = static_cast<float>(span.average_rest);
  }
  arrays.rounds_randomly = span.rounds_randomly;
  arrays.stream = span.stream;
  arrays.first_element = span.first_element;
  arrays.size = span.gradient.numel();
  if (span.learning_rate.defined()) {
    arrays.learning_rate = span.learning_rate.const_data_ptr<double>();
  }
  if (span.missed.defined()) {
    arrays.missed = span.missed.const_data_ptr<int64_t>();
  }
  return arrays;
}

}  // namespace lockstep::amp
