#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lockstep/amp/layers/class_block.h>
#include <lockstep/amp/layers/row_kernels.h>
#include <lockstep/amp/layers/tensor_rows.h>

#include <algorithm>

namespace lockstep::amp {

namespace {

constexpr int64_t kRowsOfATask = 16;

bool holds(const BlockTargets& targets, int64_t target, int64_t classes) {
  return target != targets.ignore_index && target >= targets.first &&
         target < targets.first + classes;
}

void sum_on_cpu(const ClassSums& sums, const at::Tensor& logits, const BlockTargets& targets) {
  const TensorRows in(logits);
  const auto* target = targets.classes.const_data_ptr<int64_t>();
  auto* log_sum_exp = sums.log_sum_exp.mutable_data_ptr<double>();
  auto* sum = sums.sum.mutable_data_ptr<double>();
  auto* of_target = sums.target.mutable_data_ptr<double>();
  at::parallel_for(0, in.rows(), kRowsOfATask, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch;
    for (int64_t row = begin; row < end; ++row) {
      const float* values = in.read(row, scratch);
      const RowSums found = sum_row(values, in.size());
      log_sum_exp[row] = found.log_sum_exp;
      sum[row] = found.sum;
      of_target[row] =
          holds(targets, target[row], in.size()) ? values[target[row] - targets.first] : 0.0;
    }
  });
}

void slope_on_cpu(const at::Tensor& gradient, const at::Tensor& logits, const BlockTargets& targets,
                  const at::Tensor& log_sums, const at::Tensor& factor, double rest,
                  double on_target) {
  const TensorRows in(logits);
  const TensorRows out(gradient);
  const auto* target = targets.classes.const_data_ptr<int64_t>();
  const auto* log_sum = log_sums.const_data_ptr<double>();
  const auto* factors = factor.const_data_ptr<float>();
  at::parallel_for(0, in.rows(), kRowsOfATask, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch;
    std::vector<float> result;
    for (int64_t row = begin; row < end; ++row) {
      float* slopes = out.target(row, result);
      if (target[row] == targets.ignore_index) {
        std::fill_n(slopes, in.size(), 0.0F);
      } else {
        softmax_minus(slopes, in.read(row, scratch), in.size(), static_cast<float>(log_sum[row]),
                      factors[row], static_cast<float>(rest));
        if (holds(targets, target[row], in.size())) {
          slopes[target[row] - targets.first] -= static_cast<float>(factors[row] * on_target);
        }
      }
      out.store(row, slopes);
    }
  });
}

/// The column of each row's target, and whether it is in the block; column 0 if it is not.
struct TargetColumns {
  TargetColumns(const BlockTargets& targets, int64_t classes)
      : held((targets.classes >= targets.first)
                 .logical_and(targets.classes < targets.first + classes)
                 .logical_and(targets.classes != targets.ignore_index)
                 .unsqueeze(1)),
        column((targets.classes.unsqueeze(1) - targets.first).masked_fill(held.logical_not(), 0)) {}

  at::Tensor held;
  at::Tensor column;
};

}  // namespace

ClassSums sum_classes(const at::Tensor& logits, const BlockTargets& targets) {
  if (!logits.is_cpu()) {
    return composed_sum_classes(logits, targets);
  }
  const auto rows = [&] { return at::empty({logits.size(0)}, at::kDouble); };
  ClassSums sums{rows(), rows(), rows()};
  sum_on_cpu(sums, logits, targets);
  return sums;
}

void slope_of_classes(const at::Tensor& gradient, const at::Tensor& logits,
                      const BlockTargets& targets, const at::Tensor& log_sums,
                      const at::Tensor& factor, double rest, double on_target) {
  const auto run = logits.is_cpu() ? slope_on_cpu : composed_slope_of_classes;
  run(gradient, logits, targets, log_sums, factor, rest, on_target);
}

ClassSums composed_sum_classes(const at::Tensor& logits, const BlockTargets& targets) {
  const at::Tensor wide = logits.to(at::kFloat);
  const TargetColumns where(targets, logits.size(1));
  const at::Tensor target =
      wide.gather(1, where.column).masked_fill(where.held.logical_not(), 0.0).squeeze(1);
  return {wide.logsumexp(1).to(at::kDouble), wide.sum(1).to(at::kDouble), target.to(at::kDouble)};
}

void composed_slope_of_classes(const at::Tensor& gradient, const at::Tensor& logits,
                               const BlockTargets& targets, const at::Tensor& log_sums,
                               const at::Tensor& factor, double rest, double on_target) {
  const TargetColumns where(targets, logits.size(1));
  const at::Tensor ignored = (targets.classes == targets.ignore_index).unsqueeze(1);
  at::Tensor slopes =
      (logits.to(at::kFloat) - log_sums.to(at::kFloat).unsqueeze(1)).exp_().sub_(rest);
  slopes.scatter_add_(1, where.column, where.held.to(at::kFloat) * -on_target);
  gradient.copy_(slopes.mul_(factor.unsqueeze(1)).masked_fill_(ignored, 0.0));
}

}  // namespace lockstep::amp
