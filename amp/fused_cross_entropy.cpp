#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/observed.h>
#include <lockstep/amp/row_kernels.h>
#include <lockstep/amp/tensor_rows.h>
#include <lockstep/collectives/error.h>
#include <torch/csrc/autograd/custom_function.h>

namespace lockstep {

namespace {

using amp::RowSums;
using amp::TensorRows;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& targets, double smoothing, int64_t ignore_index) {
    const at::Tensor logits = input.contiguous();
    const int64_t rows = logits.size(0);
    const auto classes = static_cast<float>(logits.size(1));
    const at::Tensor log_sums = at::zeros({rows}, at::kFloat);
    const at::Tensor losses = at::zeros({rows}, at::kDouble);
    auto* log_sum = log_sums.mutable_data_ptr<float>();
    auto* loss = losses.mutable_data_ptr<double>();
    const auto* target = targets.const_data_ptr<int64_t>();
    const TensorRows in(logits);
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      std::vector<float> wide;
      for (int64_t row = begin; row < end; ++row) {
        if (target[row] == ignore_index) {
          continue;
        }
        const float* values = in.read(row, wide);
        const RowSums sums = amp::sum_row(values, in.size());
        log_sum[row] = sums.log_sum_exp;
        loss[row] = sums.log_sum_exp - (1.0 - smoothing) * values[target[row]] -
                    smoothing * (sums.sum / classes);
      }
    });
    const auto counted = static_cast<double>(targets.ne(ignore_index).sum().item<int64_t>());
    context->save_for_backward({logits, targets, log_sums});
    context->saved_data["smoothing"] = smoothing;
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["counted"] = counted;
    double total = 0.0;  // in order: the same bits for any number of threads
    for (int64_t row = 0; row < rows; ++row) {
      total += loss[row];
    }
    return at::full({}, total / counted, at::kFloat);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const double smoothing = context->saved_data["smoothing"].toDouble();
    const int64_t ignore_index = context->saved_data["ignore_index"].toInt();
    const auto factor =
        static_cast<float>(outputs[0].item<double>() / context->saved_data["counted"].toDouble());
    const auto rest = static_cast<float>(smoothing / static_cast<double>(logits.size(1)));
    const at::Tensor gradient = at::zeros_like(logits);
    const auto* target = saved[1].const_data_ptr<int64_t>();
    const auto* log_sum = saved[2].const_data_ptr<float>();
    const TensorRows in(logits);
    const TensorRows out(gradient);
    at::parallel_for(0, logits.size(0), 16, [&](int64_t begin, int64_t end) {
      std::vector<float> wide;
      std::vector<float> result;
      for (int64_t row = begin; row < end; ++row) {
        if (target[row] == ignore_index) {
          continue;
        }
        float* slope = out.target(row, result);
        amp::softmax_minus(slope, in.read(row, wide), in.size(), log_sum[row], factor, rest);
        slope[target[row]] -= static_cast<float>(factor * (1.0 - smoothing));
        out.store(row, slope);
      }
    });
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check(const at::Tensor& logits, const at::Tensor& targets, double smoothing,
           int64_t ignore_index) {
  constexpr const char* kName = "lockstep::fused_cross_entropy";
  LOCKSTEP_CHECK(logits.defined() && logits.dim() == 2 && logits.size(1) > 0 &&
                     (logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kHalf ||
                      logits.scalar_type() == at::kBFloat16),
                 kName, ": the logits must be an fp32, fp16 or bf16 matrix (rows, classes), found ",
                 logits.defined() ? c10::str(logits.scalar_type(), logits.sizes()) : "no tensor");
  LOCKSTEP_CHECK(
      targets.defined() && targets.scalar_type() == at::kLong && targets.dim() == 1 &&
          targets.size(0) == logits.size(0) && targets.is_contiguous(),
      kName, ": the targets must be a contiguous int64 vector of ", logits.size(0),
      " elements, found ",
      targets.defined() ? c10::str(targets.scalar_type(), targets.sizes()) : "no tensor");
  LOCKSTEP_CHECK(smoothing >= 0.0 && smoothing < 1.0, kName, ": label_smoothing is ", smoothing,
                 ", it must be at least 0 and below 1");
  if (logits.is_cpu()) {
    const auto* target = targets.const_data_ptr<int64_t>();
    for (int64_t row = 0; row < targets.size(0); ++row) {
      LOCKSTEP_CHECK(
          target[row] == ignore_index || (target[row] >= 0 && target[row] < logits.size(1)), kName,
          ": the target of row ", row, " is ", target[row], ", there are classes 0 to ",
          logits.size(1) - 1);
    }
  }
}

}  // namespace

at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               double label_smoothing, int64_t ignore_index) {
  check(logits, targets, label_smoothing, ignore_index);
  if (!logits.is_cpu()) {
    return at::cross_entropy_loss(logits.to(at::kFloat), targets, {}, at::Reduction::Mean,
                                  ignore_index, label_smoothing);
  }
  return amp::observed("lockstep::fused_cross_entropy", {logits}, [&] {
    return CrossEntropy::apply(logits, targets, label_smoothing, ignore_index);
  });
}

}  // namespace lockstep
