#include "gpu_libtorch_loop.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>

#include <optional>

namespace lockstep::benchmarks {

GpuLibTorchLoop::GpuLibTorchLoop(const Workload& workload, at::ScalarType dtype, c10::Device device)
    : workload_(workload),
      dtype_(dtype),
      device_(device),
      scale_(at::full({}, 65536.0, device)),
      growth_(at::zeros({}, at::TensorOptions().dtype(at::kInt).device(device))) {
  for (const at::Tensor& parameter : workload.module->parameters()) {
    parameters_.push_back(parameter);
    first_.push_back(at::zeros_like(parameter));
    second_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, device));
  }
}

at::Tensor GpuLibTorchLoop::loss() const {
  at::autocast::set_autocast_enabled(device_.type(), true);
  at::autocast::set_autocast_dtype(device_.type(), dtype_);
  at::autocast::increment_nesting();
  at::Tensor loss = workload_.loss();
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_.type(), false);
  return loss;
}

void GpuLibTorchLoop::step() {
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad().reset();
  }
  const bool scaled = dtype_ == at::kHalf;
  const at::Tensor loss = this->loss();
  (scaled ? loss * scale_ : loss).backward();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
  }
  std::optional<at::Tensor> grad_scale, found_inf;
  if (scaled) {
    grad_scale = scale_;
    found_inf = at::zeros({}, device_);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, *found_inf, at::ones({}, device_));
  }
  at::_foreach_add_(steps_, 1);
  at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, /*lr=*/1e-4,
                    /*beta1=*/0.9, /*beta2=*/0.999, /*weight_decay=*/1e-2, /*eps=*/1e-8,
                    /*amsgrad=*/false, /*maximize=*/false, grad_scale, found_inf);
  if (scaled) {
    at::_foreach_sub_(steps_, std::vector<at::Tensor>(steps_.size(), *found_inf));
    at::_amp_update_scale_(scale_, growth_, *found_inf, /*growth_factor=*/2.0,
                           /*backoff_factor=*/0.5, /*growth_interval=*/2000);
  }
}

}  // namespace lockstep::benchmarks
