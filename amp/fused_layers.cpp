#include <ATen/ATen.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/layers/layer_checks.h>
#include <lockstep/amp/layers/layer_passes.h>
#include <lockstep/amp/tracing/observed.h>
#include <lockstep/collectives/check.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace lockstep {

namespace {

using amp::NormPass;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_input(const char* layer, const at::Tensor& x) {
  amp::check_plain(layer, x);
  LOCKSTEP_CHECK(x.defined() && x.dim() >= 1 && amp::is_layer_dtype(x.scalar_type()), layer,
                 ": the input must be an fp32, fp16 or bf16 tensor, found ", amp::described(x));
}

void check_parameter(const char* layer, const char* name, const at::Tensor& parameter,
                     const at::Tensor& x) {
  amp::check_plain(layer, parameter);
  LOCKSTEP_CHECK(
      !parameter.defined() || (parameter.scalar_type() == at::kFloat && parameter.dim() == 1 &&
                               parameter.size(0) == x.size(-1) && parameter.device() == x.device()),
      layer, ": ", name, " must be fp32 with ", x.size(-1), " elements, the input's last size, on ",
      x.device().str(), "; found ", amp::described(parameter),
      " (keep norms in fp32, as O1 and O2 do)");
}

struct Norm : torch::autograd::Function<Norm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, bool centred, double eps) {
    NormPass pass;
    pass.x = amp::in_memory(input);
    pass.weight = weight ? amp::in_memory(*weight) : at::Tensor();
    pass.bias = bias ? amp::in_memory(*bias) : at::Tensor();
    const int64_t rows = input.size(-1) == 0 ? 0 : input.numel() / input.size(-1);
    pass.norms = at::empty({rows, 2}, input.options().dtype(at::kFloat));
    pass.centred = centred;
    pass.eps = eps;
    at::Tensor y = at::empty_like(pass.x);
    (y.is_cuda() ? amp::norm_on_cuda : amp::norm_on_cpu)(pass, y);
    context->save_for_backward({pass.x, pass.weight, pass.bias, pass.norms});
    context->saved_data["centred"] = centred;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    NormPass pass{saved[0], saved[1], saved[2], saved[3], context->saved_data["centred"].toBool()};
    const at::Tensor dx = at::empty_like(pass.x);
    const auto run = dx.is_cuda() ? amp::norm_backward_on_cuda : amp::norm_backward_on_cpu;
    const at::Tensor sums = run(pass, dx, amp::in_memory(outputs[0]));
    return {dx, pass.weight.defined() ? sums[0] : at::Tensor(),
            pass.bias.defined() ? sums[1] : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& bias) {
    const at::Tensor x = amp::in_memory(input);
    at::Tensor y = at::empty_like(x);
    const at::Tensor added = amp::in_memory(bias);
    (y.is_cuda() ? amp::bias_gelu_on_cuda : amp::bias_gelu_on_cpu)(y, x, added);
    context->save_for_backward({x, added});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dx = at::empty_like(saved[0]);
    const auto run =
        dx.is_cuda() ? amp::bias_gelu_backward_on_cuda : amp::bias_gelu_backward_on_cpu;
    const at::Tensor bias_gradient = run(dx, amp::in_memory(outputs[0]), saved[0], saved[1]);
    return {dx, bias_gradient};
  }
};

/// Autograd takes no undefined tensors as arguments.
std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

at::Tensor composed_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         bool centred, double eps) {
  const amp::Autocast off(x.device().type(), at::kHalf, /*enabled=*/false);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor moved = centred ? wide - wide.mean(-1, true) : wide;
  at::Tensor y = moved * at::rsqrt(moved.square().mean(-1, true) + eps);
  y = weight.defined() ? y * weight : y;
  return (bias.defined() ? y + bias : y).to(x.scalar_type());
}

at::Tensor norm(const char* layer, const at::Tensor& x, const at::Tensor& weight,
                const at::Tensor& bias, bool centred, double eps) {
  check_input(layer, x);
  check_parameter(layer, "weight", weight, x);
  check_parameter(layer, "bias", bias, x);
  LOCKSTEP_CHECK(weight.defined() || !bias.defined(), layer, ": a bias needs a weight");
  if (!amp::has_passes(x)) {
    return composed_norm(x, weight, bias, centred, eps);
  }
  return amp::observed(layer, {x, weight, bias}, [&] {
    return Norm::apply(x, if_defined(weight), if_defined(bias), centred, eps);
  });
}

}  // namespace

at::Tensor fused_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            double eps) {
  return norm("lockstep::fused_layer_norm", x, weight, bias, /*centred=*/true, eps);
}

at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return norm("lockstep::fused_rms_norm", x, weight, {}, /*centred=*/false, eps);
}

at::Tensor fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  constexpr const char* kName = "lockstep::fused_bias_gelu";
  check_input(kName, x);
  LOCKSTEP_CHECK(bias.defined(), kName, ": there is no bias");
  check_parameter(kName, "bias", bias, x);
  if (!amp::has_passes(x)) {
    return at::gelu(x.to(at::kFloat) + bias, "tanh").to(x.scalar_type());
  }
  return amp::observed(kName, {x, bias}, [&] { return BiasGelu::apply(x, bias); });
}

FusedLayerNormImpl::FusedLayerNormImpl(int64_t size, double eps)
    : weight(register_parameter("weight", at::ones({size}))),
      bias(register_parameter("bias", at::zeros({size}))),
      eps_(eps) {}

FusedRMSNormImpl::FusedRMSNormImpl(int64_t size, double eps)
    : weight(register_parameter("weight", at::ones({size}))), eps_(eps) {}

}  // namespace lockstep
