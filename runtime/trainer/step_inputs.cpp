#include <ATen/ops/empty_like.h>
#include <lockstep/runtime/data/impl/to_device.h>
#include <lockstep/runtime/trainer/own/step_inputs.h>

namespace lockstep::detail {

std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& inputs, c10::Device device) {
  std::vector<at::Tensor> there;
  there.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) {
      there.push_back(input);
      continue;
    }
    const bool is_read_later = device.is_cuda() && input.is_cpu() && input.is_pinned();
    there.push_back(moved(
        is_read_later ? at::empty_like(input, input.options().pinned_memory(true)).copy_(input)
                      : input,
        device));
  }
  return there;
}

}  // namespace lockstep::detail
