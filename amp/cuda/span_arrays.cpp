#include <lockstep/amp/cuda/span_arrays.h>
#include <lockstep/amp/flat_span.h>
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
    arrays.moments[m] = span.moments[m].mutable_data_ptr<float>();
  }
  arrays.size = span.gradient.numel();
  return arrays;
}

}  // namespace lockstep::amp
