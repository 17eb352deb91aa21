#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/loop/own/layer_norms.h>
#include <lockstep/runtime/step/impl/reducer.h>

#include <limits>
#include <string>
#include <vector>

namespace lockstep::detail {
namespace {

at::Tensor norm_of(const at::Tensor& values) {
  return at::linalg_vector_norm(values.is_complex() ? at::view_as_real(values) : values, 2, {},
                                /*keepdim=*/false, at::kDouble);
}

}  // namespace

void add_layer_norms(const Reducer& reducer, const StepReport& report, LogValues& values) {
  const c10::AutoGradMode no_grad(false);
  std::vector<std::string> names;
  std::vector<at::Tensor> norms;
  for (size_t bucket = 0; bucket < reducer.size(); ++bucket) {
    for (const Slot& slot : reducer.plans()[bucket].slots) {
      const ModelTensor& parameter = reducer.parameters()[static_cast<size_t>(slot.parameter)];
      names.push_back(parameter.name);
      norms.push_back(norm_of(reducer.wire(bucket).narrow(0, slot.offset, slot.numel)));
      norms.push_back(norm_of(parameter.tensor));
    }
  }
  const at::Tensor found = at::stack(norms).cpu();
  const auto* norm = found.const_data_ptr<double>();
  const double scale = report.skipped() ? std::numeric_limits<double>::quiet_NaN() : report.scale();
  for (size_t i = 0; i < names.size(); ++i) {
    values.emplace_back("gradient_norm/" + names[i], norm[2 * i] / scale);
    values.emplace_back("weight_norm/" + names[i], norm[2 * i + 1]);
  }
}

}  // namespace lockstep::detail
