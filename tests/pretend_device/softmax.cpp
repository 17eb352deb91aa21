// CUDA's softmaxes, which take 16-bit inputs to fp32, and gradients back; the host's do not.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "operators.h"
#include "recording.h"

namespace lockstep::pretend {
namespace {

template <auto softmax>
at::Tensor& softmax_out(const at::Tensor& self, int64_t dim, bool to_float, at::Tensor& out) {
  touch(self, Access::read);
  touch(out, Access::write);
  perform([=] {
    const Inside inside;
    const at::Tensor input = to_float ? on_host(self).to(at::kFloat) : on_host(self);
    on_host(out).copy_(softmax(input, dim, false));
  });
  return out;
}

template <auto softmax_backward>
at::Tensor& softmax_backward_out(const at::Tensor& gradient, const at::Tensor& output, int64_t dim,
                                 at::ScalarType /*input*/, at::Tensor& out) {
  touch(gradient, Access::read);
  touch(output, Access::read);
  touch(out, Access::write);
  perform([=] {
    const Inside inside;
    const at::Tensor incoming = on_host(gradient);
    on_host(out).copy_(softmax_backward(incoming, on_host(output), dim, incoming.scalar_type()));
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_softmax.out", &softmax_out<at::_softmax>);
  library.impl("_log_softmax.out", &softmax_out<at::_log_softmax>);
  library.impl("_softmax_backward_data.out", &softmax_backward_out<at::_softmax_backward_data>);
  library.impl("_log_softmax_backward_data.out",
               &softmax_backward_out<at::_log_softmax_backward_data>);
}

}  // namespace lockstep::pretend
