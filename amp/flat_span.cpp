#include <lockstep/amp/flat_span.h>
#include <lockstep/collectives/error.h>

namespace lockstep::amp {

namespace {

bool is_wire_dtype(c10::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

void check_array(const char* name, const at::Tensor& array, const at::Tensor& like) {
  LOCKSTEP_CHECK(array.defined(), "FlatSpan: ", name, " is undefined");
  LOCKSTEP_CHECK(array.dim() == 1 && array.is_contiguous() && array.numel() == like.numel() &&
                     array.device() == like.device(),
                 "FlatSpan: ", name, " has sizes ", array.sizes(), " strides ", array.strides(),
                 " on ", array.device().str(), ", expected a contiguous array of ", like.numel(),
                 " elements on ", like.device().str());
}

void check_dtype(const char* name, const at::Tensor& array, bool good, const char* expected) {
  LOCKSTEP_CHECK(good, "FlatSpan: ", name, " is ", array.scalar_type(), ", expected ", expected);
}

}  // namespace

void check_span(const FlatSpan& span, int moments) {
  check_array("gradient", span.gradient, span.gradient);
  check_dtype("gradient", span.gradient, is_wire_dtype(span.gradient.scalar_type()),
              "Float, Half or BFloat16");
  LOCKSTEP_CHECK(span.master.defined() || span.weight.defined(),
                 "FlatSpan: neither master nor weight is defined, so there is nothing to update");
  if (span.master.defined()) {
    check_array("master", span.master, span.gradient);
    check_dtype("master", span.master, span.master.scalar_type() == at::kFloat, "Float");
  }
  if (span.weight.defined()) {
    check_array("weight", span.weight, span.gradient);
    check_dtype("weight", span.weight, is_wire_dtype(span.weight.scalar_type()),
                "Float, Half or BFloat16");
  }
  LOCKSTEP_CHECK(static_cast<int>(span.moments.size()) == moments, "FlatSpan: found ",
                 span.moments.size(), " moments, this optimizer has ", moments);
  for (const at::Tensor& moment : span.moments) {
    check_array("moment", moment, span.gradient);
    check_dtype("moment", moment, moment.scalar_type() == at::kFloat, "Float");
  }
}

const at::Tensor& updated_array(const FlatSpan& span) {
  return span.master.defined() ? span.master : span.weight;
}

}  // namespace lockstep::amp
