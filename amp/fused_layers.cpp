#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/observed.h>
#include <lockstep/amp/row_kernels.h>
#include <lockstep/amp/tensor_rows.h>
#include <lockstep/collectives/error.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace lockstep {

namespace {

using amp::RowNorm;
using amp::TensorRows;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunks = 16;  // partial sums of parameter gradients, whatever the threads

void check_input(const char* layer, const at::Tensor& x) {
  LOCKSTEP_CHECK(x.defined() && x.dim() >= 1 &&
                     (x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf ||
                      x.scalar_type() == at::kBFloat16),
                 layer, ": the input must be an fp32, fp16 or bf16 tensor, found ",
                 x.defined() ? c10::str(x.scalar_type(), x.sizes()) : "no tensor");
}

void check_parameter(const char* layer, const char* name, const at::Tensor& parameter,
                     const at::Tensor& x) {
  LOCKSTEP_CHECK(!parameter.defined() || (parameter.scalar_type() == at::kFloat &&
                                          parameter.dim() == 1 && parameter.size(0) == x.size(-1)),
                 layer, ": ", name, " must be fp32 with ", x.size(-1),
                 " elements, the input's last size; found ", parameter.scalar_type(),
                 parameter.sizes(), " (keep norms in fp32, as O1 and O2 do)");
}

const float* values_of(const at::Tensor& parameter) {
  return parameter.defined() ? parameter.const_data_ptr<float>() : nullptr;
}

int64_t rows_of(const at::Tensor& x) {
  return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
}

/// Runs body(row, weight_part, bias_part) on all rows: chunks of rows in parallel, each with
/// partial sums of its own, added in order at the end.
template <typename Body>
std::pair<at::Tensor, at::Tensor> sum_over_rows(int64_t rows, int64_t size, const Body& body) {
  const at::Tensor parts = at::zeros({2, kChunks, size}, at::kFloat);
  auto* data = parts.mutable_data_ptr<float>();
  at::parallel_for(0, kChunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      for (int64_t row = rows * chunk / kChunks; row < rows * (chunk + 1) / kChunks; ++row) {
        body(row, data + chunk * size, data + (kChunks + chunk) * size);
      }
    }
  });
  at::Tensor sums = parts.select(1, 0).clone();
  for (int64_t chunk = 1; chunk < kChunks; ++chunk) {
    sums += parts.select(1, chunk);
  }
  return {sums[0], sums[1]};
}

struct Norm : torch::autograd::Function<Norm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& maybe_weight,
                            const std::optional<at::Tensor>& maybe_bias, bool centred, double eps) {
    const at::Tensor weight = maybe_weight.value_or(at::Tensor());
    const at::Tensor bias = maybe_bias.value_or(at::Tensor());
    const at::Tensor x = input.contiguous();
    const at::Tensor y = at::empty_like(x);
    const int64_t rows = rows_of(x);
    const at::Tensor norms = at::empty({rows, 2}, at::kFloat);
    auto* measured = reinterpret_cast<RowNorm*>(norms.mutable_data_ptr<float>());
    const TensorRows in(x);
    const TensorRows out(y);
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      std::vector<float> wide;
      std::vector<float> result;
      for (int64_t row = begin; row < end; ++row) {
        const float* values = in.read(row, wide);
        measured[row] = amp::measure_row(values, in.size(), centred, eps);
        float* target = out.target(row, result);
        amp::norm_row(target, values, values_of(weight), values_of(bias), in.size(), measured[row]);
        out.store(row, target);
      }
    });
    context->save_for_backward({x, weight, norms});
    context->saved_data["centred"] = centred;
    context->saved_data["has_bias"] = bias.defined();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const bool centred = context->saved_data["centred"].toBool();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const at::Tensor dy = outputs[0].contiguous();
    const at::Tensor dx = at::empty_like(x);
    const auto* norms = reinterpret_cast<const RowNorm*>(saved[2].const_data_ptr<float>());
    const TensorRows in(x);
    const TensorRows slopes(dy);
    const TensorRows out(dx);
    const auto sums = sum_over_rows(
        rows_of(x), in.size(), [&](int64_t row, float* weight_part, float* bias_part) {
          thread_local std::vector<float> values;
          thread_local std::vector<float> gradient;
          thread_local std::vector<float> result;
          float* target = out.target(row, result);
          amp::norm_row_backward(target, slopes.read(row, gradient), in.read(row, values),
                                 values_of(weight), weight.defined() ? weight_part : nullptr,
                                 has_bias ? bias_part : nullptr, in.size(), norms[row], centred);
          out.store(row, target);
        });
    return {dx, weight.defined() ? sums.first : at::Tensor(), has_bias ? sums.second : at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& bias) {
    const at::Tensor x = input.contiguous();
    const at::Tensor y = at::empty_like(x);
    const TensorRows in(x);
    const TensorRows out(y);
    at::parallel_for(0, rows_of(x), 16, [&](int64_t begin, int64_t end) {
      std::vector<float> wide;
      std::vector<float> result;
      for (int64_t row = begin; row < end; ++row) {
        float* target = out.target(row, result);
        amp::bias_gelu_row(target, in.read(row, wide), values_of(bias), in.size());
        out.store(row, target);
      }
    });
    context->save_for_backward({x, bias});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor dy = outputs[0].contiguous();
    const at::Tensor dx = at::empty_like(x);
    const TensorRows in(x);
    const TensorRows slopes(dy);
    const TensorRows out(dx);
    const auto sums =
        sum_over_rows(rows_of(x), in.size(), [&](int64_t row, float*, float* bias_part) {
          thread_local std::vector<float> values;
          thread_local std::vector<float> gradient;
          thread_local std::vector<float> result;
          float* target = out.target(row, result);
          amp::bias_gelu_row_backward(target, slopes.read(row, gradient), in.read(row, values),
                                      values_of(saved[1]), bias_part, in.size());
          out.store(row, target);
        });
    return {dx, sums.second};
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
  if (!x.is_cpu()) {
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
  if (!x.is_cpu()) {
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
