#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/loop/own/exact_sum.h>
#include <lockstep/runtime/metrics.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

/// Scores of sizes [targets, classes] and class numbers of sizes [targets], on one device, without
/// the ignored ones.
struct Classified {
  at::Tensor scores;
  at::Tensor targets;
};

Classified classified(const std::string& metric, const at::Tensor& output,
                      const at::Tensor& target) {
  LOCKSTEP_CHECK(output.defined() && target.defined(), "the metric ", metric,
                 " needs scores and targets; return both from the function of evaluate(): "
                 "lockstep::Prediction{output, target}");
  for (const at::Tensor* tensor : {&output, &target}) {
    const std::string why = detail::why_not_plain(*tensor);
    LOCKSTEP_CHECK(why.empty(), "the metric ", metric, ": the ",
                   tensor == &output ? "output " : "target ", why);
  }
  LOCKSTEP_CHECK(output.dim() >= 1 && output.is_floating_point() &&
                     c10::isIntegralType(target.scalar_type(), /*includeBool=*/false) &&
                     output.sizes().slice(0, output.dim() - 1) == target.sizes(),
                 "the metric ", metric, ": the output is ", output.scalar_type(), " ",
                 output.sizes(), " and the target is ", target.scalar_type(), " ", target.sizes(),
                 ", expected scores of sizes [..., classes] and class numbers of sizes [...]");
  const int64_t classes = output.size(-1);
  at::Tensor scores = output.detach().reshape({target.numel(), classes});
  at::Tensor targets = target.to(output.device(), at::kLong).reshape({target.numel()});
  const at::Tensor counted = targets.ne(kIgnoredTarget).nonzero().squeeze(1);
  if (counted.numel() < targets.numel()) {
    scores = scores.index_select(0, counted);
    targets = targets.index_select(0, counted);
  }
  if (targets.numel() > 0) {
    const auto least = targets.min().item<int64_t>();
    const auto most = targets.max().item<int64_t>();
    LOCKSTEP_CHECK(least >= 0 && most < classes, "the metric ", metric, ": the targets are ", least,
                   " to ", most, ", but there are scores for the classes 0 to ", classes - 1);
  }
  return {scores, targets};
}

/// Outputs [samples] beside targets [samples] may be logits of two classes: those are refused.
bool holds_losses(const at::Tensor& output, const at::Tensor& target) {
  return output.defined() && output.dim() == 1 &&
         (!target.defined() ||
          (target.dim() >= 2 && c10::isIntegralType(target.scalar_type(), /*includeBool=*/false)));
}

MeanOf::Function cross_entropy(const std::string& metric) {
  return [metric](const at::Tensor& output, const at::Tensor& target) {
    if (holds_losses(output, target)) {
      return output;
    }
    const Classified batch = classified(metric, output, target);
    if (batch.targets.numel() == 0) {
      return at::empty({0});
    }
    const at::Tensor scores =
        batch.scores.scalar_type() == at::kDouble ? batch.scores : batch.scores.to(at::kFloat);
    return at::cross_entropy_loss(scores, batch.targets, {}, at::Reduction::None);
  };
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole)
                   : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

TopK::TopK(int64_t k, std::string name)
    : Metric(name.empty() ? "top" + std::to_string(k) : std::move(name), 2,
             /*lower_is_better=*/false),
      k_(k) {
  LOCKSTEP_CHECK(k >= 1, "TopK: k is ", k, ", expected 1 or more");
}

void TopK::add(const Prediction& batch) {
  const Classified part = classified(name(), batch.output, batch.target);
  if (part.targets.numel() == 0) {
    return;
  }
  const at::Tensor targets = part.targets.unsqueeze(1);
  const at::Tensor own = part.scores.gather(1, targets);
  const at::Tensor classes = at::arange(part.scores.size(1), targets.options());
  const at::Tensor before =
      part.scores.gt(own).logical_or_(part.scores.eq(own).logical_and_(classes.lt(targets)));
  const at::Tensor hits =
      before.sum(1).lt(k_).logical_and_(at::isnan(part.scores).any(1).logical_not());
  counts()[0] += part.targets.numel();
  counts()[1] += hits.sum().item<int64_t>();
}

double TopK::value() const {
  return ratio(counts()[1], counts()[0]);
}

MeanOf::MeanOf(std::string name, Function function, std::optional<bool> lower_is_better)
    : Metric(std::move(name), 1 + detail::kExactSumWords, lower_is_better),
      function_(std::move(function)) {}

void MeanOf::add(const Prediction& batch) {
  const at::Tensor found = function_ ? function_(batch.output, batch.target) : batch.output;
  const std::string why = found.defined() ? detail::why_not_plain(found) : std::string();
  LOCKSTEP_CHECK(why.empty(), "the metric ", name(), ": the tensor of its numbers ", why);
  LOCKSTEP_CHECK(found.defined() && found.dim() >= 1 && !found.is_complex(), "the metric ", name(),
                 ": expected one number for each sample of the batch, as a tensor of one dimension "
                 "or more; compute the loss with reduction none");
  const at::Tensor values = detail::applied(found.detach()).to(at::kCPU, at::kDouble).contiguous();
  counts()[0] += values.numel();
  detail::add_exactly(counts().data() + 1, values.const_data_ptr<double>(), values.numel());
}

double MeanOf::value() const {
  return counts()[0] > 0
             ? detail::rounded_sum(counts().data() + 1) / static_cast<double>(counts()[0])
             : std::numeric_limits<double>::quiet_NaN();
}

MeanLoss::MeanLoss(std::string name)
    : MeanOf(name, cross_entropy(name), /*lower_is_better=*/true) {}

Perplexity::Perplexity(std::string name)
    : MeanOf(name, cross_entropy(name), /*lower_is_better=*/true) {}

double Perplexity::value() const {
  return std::exp(MeanOf::value());
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, std::string name)
    : Metric(std::move(name), static_cast<size_t>(classes > 0 ? classes * classes : 0),
             /*lower_is_better=*/false),
      classes_(classes) {
  LOCKSTEP_CHECK(classes >= 1, "ConfusionMatrix: classes is ", classes, ", expected 1 or more");
}

void ConfusionMatrix::add(const Prediction& batch) {
  const Classified part = classified(name(), batch.output, batch.target);
  LOCKSTEP_CHECK(part.scores.size(1) == classes_, "the metric ", name(), ": the output has ",
                 part.scores.size(1), " classes, ConfusionMatrix was made for ", classes_);
  if (part.targets.numel() == 0) {
    return;
  }
  const at::Tensor cells =
      (part.targets * classes_ + part.scores.argmax(1)).to(at::kCPU).contiguous();
  const auto* cell = cells.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < cells.numel(); ++i) {
    ++counts()[static_cast<size_t>(cell[i])];
  }
}

double ConfusionMatrix::value() const {
  double sum = 0.0;
  int64_t occurring = 0;
  for (int64_t target = 0; target < classes_; ++target) {
    const auto row = counts().begin() + target * classes_;
    const int64_t all = std::accumulate(row, row + classes_, int64_t{0});
    if (all > 0) {
      sum += ratio(row[target], all);
      ++occurring;
    }
  }
  return occurring > 0 ? sum / static_cast<double>(occurring)
                       : std::numeric_limits<double>::quiet_NaN();
}

at::Tensor ConfusionMatrix::matrix() const {
  return at::tensor(counts(), at::kLong).view({classes_, classes_});
}

}  // namespace lockstep
