#include <ATen/ATen.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/layers/layer_checks.h>
#include <lockstep/amp/layers/layer_passes.h>
#include <lockstep/amp/tracing/observed.h>
#include <lockstep/collectives/check.h>
#include <torch/csrc/autograd/custom_function.h>

namespace lockstep {

namespace {

using amp::CrossEntropyPass;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& targets, double smoothing, int64_t ignore_index) {
    CrossEntropyPass pass;
    pass.logits = amp::in_memory(input);
    pass.targets = targets;
    pass.log_sums = at::empty({input.size(0)}, input.options().dtype(at::kFloat));
    pass.counted = at::empty({}, input.options().dtype(at::kDouble));
    pass.smoothing = smoothing;
    pass.ignore_index = ignore_index;
    context->save_for_backward({pass.logits, targets, pass.log_sums, pass.counted});
    context->saved_data["smoothing"] = smoothing;
    context->saved_data["ignore_index"] = ignore_index;
    return (input.is_cuda() ? amp::cross_entropy_on_cuda : amp::cross_entropy_on_cpu)(pass);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const CrossEntropyPass pass{saved[0],
                                saved[1],
                                saved[2],
                                saved[3],
                                context->saved_data["smoothing"].toDouble(),
                                context->saved_data["ignore_index"].toInt()};
    const at::Tensor gradient = at::empty_like(pass.logits);
    const auto run = gradient.is_cuda() ? amp::cross_entropy_backward_on_cuda
                                        : amp::cross_entropy_backward_on_cpu;
    run(pass, gradient, amp::in_memory(outputs[0]));
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check(const at::Tensor& logits, const at::Tensor& targets, double smoothing,
           int64_t ignore_index) {
  constexpr const char* kName = "lockstep::fused_cross_entropy";
  amp::check_plain(kName, logits);
  LOCKSTEP_CHECK(logits.defined() && logits.dim() == 2 && logits.size(1) > 0 &&
                     amp::is_layer_dtype(logits.scalar_type()),
                 kName, ": the logits must be an fp32, fp16 or bf16 matrix (rows, classes), found ",
                 amp::described(logits));
  amp::check_targets(kName, targets, logits, logits.size(0), logits.size(1), smoothing,
                     ignore_index);
}

}  // namespace

at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               double label_smoothing, int64_t ignore_index) {
  check(logits, targets, label_smoothing, ignore_index);
  if (!amp::has_passes(logits)) {
    return at::cross_entropy_loss(logits.to(at::kFloat), targets, {}, at::Reduction::Mean,
                                  ignore_index, label_smoothing);
  }
  return amp::observed("lockstep::fused_cross_entropy", {logits}, [&] {
    return CrossEntropy::apply(logits, targets, label_smoothing, ignore_index);
  });
}

}  // namespace lockstep
