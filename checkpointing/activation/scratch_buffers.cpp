#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <lockstep/checkpointing/activation/scratch_buffers.h>

namespace lockstep::activation {

ScratchBuffers::ScratchBuffers(std::vector<at::Tensor> buffers) {
  const at::NoGradGuard no_grad;
  lent_.reserve(buffers.size());
  for (at::Tensor& buffer : buffers) {
    if (buffer.defined()) {
      lent_.emplace_back(buffer, buffer.variable_data());
      buffer.set_data(buffer.clone());
    }
  }
}

// Reversed, since tied modules may list a buffer twice.
ScratchBuffers::~ScratchBuffers() {
  const at::NoGradGuard no_grad;
  for (auto entry = lent_.rbegin(); entry != lent_.rend(); ++entry) {
    entry->first.set_data(entry->second);
  }
}

}  // namespace lockstep::activation
