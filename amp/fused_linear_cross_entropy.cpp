#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/amp/layers/class_block.h>
#include <lockstep/amp/layers/layer_checks.h>
#include <lockstep/amp/tracing/observed.h>
#include <lockstep/collectives/check.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace lockstep {

namespace {

using amp::ClassSums;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "lockstep::fused_linear_cross_entropy";
/// Classes of a block: 700 rows of fp32 logits are 5.6 MB. Constant, so that the bits of a row do
/// not depend on the number of rows.
constexpr int64_t kClassesOfABlock = 2048;

/// Calls body(first class, logits of the block) for each block. `logits` has one block after the
/// other, each (rows, its classes).
template <typename Body>
void for_each_block(const at::Tensor& logits, int64_t rows, int64_t classes, const Body& body) {
  for (int64_t first = 0; first < classes; first += kClassesOfABlock) {
    const int64_t size = std::min(kClassesOfABlock, classes - first);
    body(first, logits.narrow(0, rows * first, rows * size).view({rows, size}));
  }
}

/// 1 where a row counts, 0 where it is ignored; NaN for a target that is no class, on a device
/// whose targets the host does not read.
at::Tensor weights_of(const at::Tensor& targets, int64_t classes, int64_t ignore_index) {
  const at::Tensor wrong = (targets < 0).logical_or(targets >= classes);
  return at::ones(targets.sizes(), targets.options().dtype(at::kDouble))
      .masked_fill(wrong, std::numeric_limits<double>::quiet_NaN())
      .masked_fill(targets == ignore_index, 0.0);
}

/// Disables autocast for products whose operands are cast already.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(c10::DeviceType device)
      : excluded_(at::autocast::get_autocast_dispatch_key_from_device_type(device)) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const at::Tensor& targets, double smoothing, int64_t ignore_index) {
    const WithoutAutocast off(input.device().type());
    const at::Tensor x = amp::in_memory(input);
    const int64_t rows = x.size(0);
    const int64_t classes = weight.size(0);
    const at::Tensor logits = at::empty({rows * classes}, x.options());
    const auto per_row = targets.options().dtype(at::kDouble);
    at::Tensor log_sums = at::full({rows}, -std::numeric_limits<double>::infinity(), per_row);
    at::Tensor sums = at::zeros({rows}, per_row);
    at::Tensor target_logits = at::zeros({rows}, per_row);
    for_each_block(logits, rows, classes, [&](int64_t first, at::Tensor block) {
      const at::Tensor part = weight.narrow(0, first, block.size(1));
      if (bias) {
        at::addmm_out(block, bias->narrow(0, first, block.size(1)), x, part.t());
      } else {
        at::mm_out(block, x, part.t());
      }
      const ClassSums found = amp::sum_classes(block, {targets, first, ignore_index});
      log_sums = at::logaddexp(log_sums, found.log_sum_exp);
      sums += found.sum;
      target_logits += found.target;
    });
    const at::Tensor weights = weights_of(targets, classes, ignore_index);
    const at::Tensor counted = weights.sum();
    const at::Tensor losses = log_sums - (1.0 - smoothing) * target_logits -
                              smoothing / static_cast<double>(classes) * sums;
    context->save_for_backward({x, weight, targets, logits, log_sums, weights / counted});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["smoothing"] = smoothing;
    context->saved_data["ignore_index"] = ignore_index;
    return (losses.masked_fill(weights == 0.0, 0.0) * weights).sum().div(counted).to(at::kFloat);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &targets = saved[2], &logits = saved[3];
    const WithoutAutocast off(x.device().type());
    const int64_t rows = x.size(0);
    const int64_t classes = weight.size(0);
    const double smoothing = context->saved_data["smoothing"].toDouble();
    const int64_t ignore_index = context->saved_data["ignore_index"].toInt();
    const at::Tensor factor = (saved[5] * outputs[0].to(at::kDouble)).to(at::kFloat);
    const bool has_bias = context->saved_data["has_bias"].toBool();
    at::Tensor dx = at::zeros(x.sizes(), x.options().dtype(at::kFloat));
    const at::Tensor dweight = at::empty_like(weight);
    const at::Tensor dbias = at::empty({classes}, dx.options());
    const at::Tensor scratch =
        at::empty({rows * std::min(kClassesOfABlock, classes)}, logits.options());
    for_each_block(logits, rows, classes, [&](int64_t first, const at::Tensor& block) {
      const int64_t size = block.size(1);
      const at::Tensor gradient = scratch.narrow(0, 0, block.numel()).view({rows, size});
      amp::slope_of_classes(gradient, block, {targets, first, ignore_index}, saved[4], factor,
                            smoothing / static_cast<double>(classes), 1.0 - smoothing);
      const at::Tensor part = weight.narrow(0, first, size);
      if (dx.scalar_type() == x.scalar_type()) {
        dx.addmm_(gradient, part);
      } else {
        dx += at::mm(gradient, part);
      }
      at::Tensor weight_block = dweight.narrow(0, first, size);
      at::mm_out(weight_block, gradient.t(), x);
      if (has_bias) {
        at::Tensor bias_block = dbias.narrow(0, first, size);
        at::sum_out(bias_block, gradient, {0}, false, at::kFloat);
      }
    });
    return {dx.to(x.scalar_type()), dweight,      has_bias ? dbias : at::Tensor(),
            at::Tensor(),           at::Tensor(), at::Tensor()};
  }
};

/// The operands of the layer's product.
struct Operands {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
};

/// Casts the operands as autocast does for at::linear; to fp32 for weights that are kept in fp32.
Operands cast(const Operands& given) {
  const c10::DeviceType device = given.x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) {
    return given;
  }
  const bool kept = amp::computes_in_fp32(given.weight);
  const at::ScalarType dtype = kept ? at::kFloat : at::autocast::get_autocast_dtype(device);
  const WithoutAutocast off(device);
  const auto operand = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return tensor;
    }
    return kept ? tensor.to(dtype) : at::autocast::cached_cast(dtype, tensor, device);
  };
  return {operand(given.x), operand(given.weight), operand(given.bias)};
}

bool is_matrix(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 2 && amp::is_layer_dtype(tensor.scalar_type());
}

void check_shapes(const Operands& given) {
  for (const at::Tensor* tensor : {&given.x, &given.weight, &given.bias}) {
    amp::check_plain(kName, *tensor);
  }
  LOCKSTEP_CHECK(is_matrix(given.x), kName,
                 ": the input must be an fp32, fp16 or bf16 matrix (rows, width), found ",
                 amp::described(given.x));
  LOCKSTEP_CHECK(
      is_matrix(given.weight) && given.weight.size(0) > 0 &&
          given.weight.size(1) == given.x.size(1) && given.weight.device() == given.x.device(),
      kName, ": the weight must be an fp32, fp16 or bf16 matrix (classes, ", given.x.size(1),
      ") on ", given.x.device().str(), ", found ", amp::described(given.weight));
  LOCKSTEP_CHECK(!given.bias.defined() ||
                     (given.bias.dim() == 1 && given.bias.size(0) == given.weight.size(0) &&
                      given.bias.device() == given.x.device()),
                 kName, ": the bias must have ", given.weight.size(0), " elements, one for each ",
                 "class, on ", given.x.device().str(), ", found ", amp::described(given.bias));
}

void check_dtypes(const Operands& operands) {
  LOCKSTEP_CHECK(
      operands.weight.scalar_type() == operands.x.scalar_type() &&
          (!operands.bias.defined() || operands.bias.scalar_type() == operands.x.scalar_type()),
      kName, ": input, weight and bias must have one dtype outside autocast, found ",
      amp::described(operands.x), ", ", amp::described(operands.weight), " and ",
      amp::described(operands.bias));
}

}  // namespace

at::Tensor fused_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                      const at::Tensor& bias, const at::Tensor& targets,
                                      double label_smoothing, int64_t ignore_index) {
  check_shapes({x, weight, bias});
  amp::check_targets(kName, targets, x, x.size(0), weight.size(0), label_smoothing, ignore_index);
  const Operands operands = cast({x, weight, bias});
  check_dtypes(operands);
  return amp::observed(kName, {x, weight, bias}, [&] {
    return LinearCrossEntropy::apply(
        operands.x, operands.weight,
        operands.bias.defined() ? std::optional(operands.bias) : std::nullopt, targets,
        label_smoothing, ignore_index);
  });
}

}  // namespace lockstep
