#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/seconds_since.h>
#include <lockstep/runtime/data/impl/sample_random.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/trainer.h>

#include <algorithm>
#include <chrono>
#include <set>

namespace lockstep {

EvaluateOptions::EvaluateOptions(const Runtime& runtime)
    : ranks_(runtime.control()), device_(runtime.device()) {}

EvaluateOptions::EvaluateOptions(const Trainer& trainer) : EvaluateOptions(trainer.runtime()) {
  trainer_ = &trainer;
}

EvaluateOptions::EvaluateOptions(Communicator ranks, c10::Device device)
    : ranks_(std::move(ranks)), device_(device) {}

EvaluateOptions& EvaluateOptions::precision(const Precision& precision) {
  LOCKSTEP_CHECK(trainer_ == nullptr,
                 "EvaluateOptions: a Trainer has its own precision; leave precision() out");
  precision.validate();
  precision_ = precision;
  return *this;
}

EvaluateOptions& EvaluateOptions::averaged(bool on) {
  LOCKSTEP_CHECK(!on || trainer_ != nullptr,
                 "EvaluateOptions: averaged() needs a Trainer, which keeps the averages; pass the "
                 "Trainer in place of the Runtime");
  averaged_ = on;
  return *this;
}

EvaluateOptions& EvaluateOptions::progress(std::string label) {
  label_ = std::move(label);
  return *this;
}

double Evaluation::operator[](const std::string& name) const {
  return metric(name).value;
}

MetricValue Evaluation::metric(const std::string& name) const {
  std::string names;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].first == name) {
      if (i == 0) {
        return {values[i].second, lower_is_better};
      }
      const bool is_known = i <= others_lower_is_better.size();
      return {values[i].second, is_known ? others_lower_is_better[i - 1] : std::nullopt};
    }
    names += (names.empty() ? "" : ", ") + values[i].first;
  }
  throw Error(c10::str("evaluate() computed no metric ", name, ", but ", names));
}

Evaluation::operator MetricValue() const {
  LOCKSTEP_CHECK(!values.empty(), "an Evaluation without a value; pass a metric to evaluate()");
  return {values[0].second, lower_is_better};
}

std::string Evaluation::text() const {
  std::string text;
  for (const auto& [name, value] : values) {
    text += name + " " + format_number(value) + "  ";
  }
  return text + "(" + std::to_string(samples) + " samples)";
}

namespace detail {
namespace {

void require_distinct_names(const std::vector<Metric*>& metrics) {
  std::set<std::string> names;
  for (const Metric* metric : metrics) {
    LOCKSTEP_CHECK(names.insert(metric->name()).second, "two metrics have the name ",
                   metric->name(), "; give one of them another");
  }
}

void clear(const std::vector<Metric*>& metrics) {
  for (Metric* metric : metrics) {
    std::fill(metric->counts().begin(), metric->counts().end(), 0);
  }
}

Prediction under_autocast(const EvaluateOptions& options,
                          const std::function<Prediction()>& predict) {
  if (options.trainer() != nullptr) {
    const amp::Autocast region = options.trainer()->autocast();
    return predict();
  }
  if (options.precision().has_value()) {
    const amp::Autocast region(options.device().type(), options.precision()->compute_dtype(),
                               options.precision()->autocast());
    return predict();
  }
  return predict();
}

/// Adds up the counts of all ranks. Returns the number of samples of all ranks.
int64_t add_up(const Communicator& ranks, const std::vector<Metric*>& metrics, int64_t samples) {
  std::vector<int64_t> all{samples};
  for (const Metric* metric : metrics) {
    all.insert(all.end(), metric->counts().begin(), metric->counts().end());
  }
  const at::Tensor sums = at::tensor(all, at::kLong);
  ranks.all_reduce(sums).wait();
  const auto* next = sums.const_data_ptr<int64_t>();
  samples = *next++;
  for (Metric* metric : metrics) {
    std::copy_n(next, metric->counts().size(), metric->counts().begin());
    next += metric->counts().size();
  }
  return samples;
}

}  // namespace

Evaluation evaluate_batches(const EvaluateOptions& options, int64_t batches,
                            const std::function<void(const TakeBatch&)>& each_batch,
                            const std::vector<Metric*>& metrics) {
  const auto start = std::chrono::steady_clock::now();
  Evaluation result;
  clear(metrics);
  const auto evaluate_share = [&] {
    require_distinct_names(metrics);
    const c10::AutoGradMode no_grad(false);
    std::optional<Progress> progress;
    if (!options.label().empty() && batches > 0) {
      progress.emplace(options.label(), batches, options.communicator().rank() == 0);
    }
    int64_t done = 0;
    each_batch([&](const std::function<Prediction()>& predict, uint64_t seed, size_t samples) {
      const SampleRandom random(seed);
      const Prediction prediction = under_autocast(options, predict);
      for (Metric* metric : metrics) {
        metric->add(prediction);
      }
      result.samples += static_cast<int64_t>(samples);
      if (progress.has_value()) {
        progress->show(++done);
      }
    });
  };
  try {
    Agreement(options.communicator()).attempt("evaluating", evaluate_share);
    result.samples = add_up(options.communicator(), metrics, result.samples);
  } catch (...) {
    clear(metrics);
    throw;
  }
  for (const Metric* metric : metrics) {
    result.values.emplace_back(metric->name(), metric->value());
  }
  result.lower_is_better = metrics.at(0)->lower_is_better();
  for (size_t i = 1; i < metrics.size(); ++i) {
    result.others_lower_is_better.push_back(metrics[i]->lower_is_better());
  }
  result.seconds = detail::seconds_since(start);
  return result;
}

}  // namespace detail
}  // namespace lockstep
