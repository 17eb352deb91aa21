#pragma once

#include <c10/core/Device.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/checkpointing/snapshot/metric_value.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/batch.h>
#include <lockstep/runtime/evaluation_scopes.h>
#include <lockstep/runtime/metrics.h>
#include <lockstep/runtime/validation_loader.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/runtime/loop/impl/batch_parts.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

class Runtime;
class Trainer;

/// Where evaluate() runs, and how. Made from a Runtime or a Trainer, which convert to it.
///   lockstep::EvaluateOptions(trainer).averaged().progress("validation")
/// The Runtime or Trainer must live as long as the object.
class EvaluateOptions {
 public:
  EvaluateOptions(const Runtime& runtime);  // NOLINT(google-explicit-constructor)
  /// The forward runs under the autocast of the Trainer's Precision.
  EvaluateOptions(const Trainer& trainer);  // NOLINT(google-explicit-constructor)
  /// For a group of ranks without a Runtime. `ranks`: a communicator on the host. `device`: that of
  /// the model.
  EvaluateOptions(Communicator ranks, c10::Device device);

  /// The forward runs under the autocast of this Precision. Without a Trainer only; throws Error
  /// with one.
  EvaluateOptions& precision(const Precision& precision);
  /// Evaluates the moving averages of the weights (AveragedWeights). Throws Error without a
  /// Trainer.
  EvaluateOptions& averaged(bool on = true);
  /// Rank 0 prints the progress of its batches under this label (Progress). Default: no output.
  EvaluateOptions& progress(std::string label);

  const Communicator& communicator() const { return ranks_; }
  c10::Device device() const { return device_; }
  const Trainer* trainer() const { return trainer_; }
  const std::optional<Precision>& precision() const { return precision_; }
  bool uses_averaged() const { return averaged_; }
  const std::string& label() const { return label_; }

 private:
  Communicator ranks_;
  c10::Device device_;
  const Trainer* trainer_ = nullptr;
  std::optional<Precision> precision_;
  bool averaged_ = false;
  std::string label_;
};

/// The result of evaluate(). The same on every rank, except `seconds`.
struct Evaluation {
  int64_t samples = 0;   // of all ranks
  double seconds = 0.0;  // that this rank's batches took, and the wait for the other ranks
  /// Name and value of each metric, in the order of the arguments. Progress can show them.
  std::vector<std::pair<std::string, double>> values;
  /// Of the first value: Metric::lower_is_better().
  std::optional<bool> lower_is_better;
  /// The same of the other values, from the second on.
  std::vector<std::optional<bool>> others_lower_is_better;

  /// The value of the metric `name`. Throws Error that lists the names if there is none.
  double operator[](const std::string& name) const;
  /// The same with its direction, where another value than the first is to say which weights are
  /// the best: trainer.save(found.metric("accuracy")).
  MetricValue metric(const std::string& name) const;
  /// The first value, for Trainer::save(), Trainer::reduce_on_plateau() and EarlyStopping. Throws
  /// Error if there is none.
  operator MetricValue() const;  // NOLINT(google-explicit-constructor)
  /// "loss 0.3121  accuracy 0.8914  (10000 samples)"
  std::string text() const;
};

namespace detail {

template <typename Value>
constexpr bool kIsMetric = std::is_base_of_v<Metric, std::decay_t<Value>>;

/// Passes one batch: `predict` runs the model, `seed` is that of the batch.
using TakeBatch =
    std::function<void(const std::function<Prediction()>& predict, uint64_t seed, size_t samples)>;

/// All of evaluate() that does not depend on types. `each_batch` calls its argument for each of
/// the `batches` of this rank. Collective.
Evaluation evaluate_batches(const EvaluateOptions& options, int64_t batches,
                            const std::function<void(const TakeBatch&)>& each_batch,
                            const std::vector<Metric*>& metrics);

template <typename Network, typename Dataset, typename Forward>
Evaluation evaluate_with(const EvaluateOptions& options, Network& network,
                         const ValidationLoader<Dataset>& loader, Forward& forward,
                         const std::vector<Metric*>& metrics) {
  std::optional<AveragedWeights> averaged;
  if (options.uses_averaged()) {
    averaged.emplace(*options.trainer(), Model(network));
  }
  const auto each_batch = [&](const TakeBatch& take) {
    const EvalMode mode(network);
    loader.for_each([&](auto& batch, const std::vector<size_t>& indices) {
      take([&] { return prediction_of(forward(batch), batch); }, loader.seed_of(indices),
           indices.size());
    });
  };
  return evaluate_batches(options, loader.batches(), each_batch, metrics);
}

}  // namespace detail

/// Computes metrics over all samples of a loader, on all ranks together.
///
///   const auto found = lockstep::evaluate(trainer, model, loader, lockstep::Accuracy(),
///                                         lockstep::MeanLoss());
///   trainer.save(found);  // its first value, the accuracy, says how good the snapshot is
///
/// Each sample is used exactly once, also where it cannot be divided evenly among the ranks. The
/// values have the same bits on every rank and on any number of ranks: the batches do not depend on
/// the ranks (ValidationLoader), and what the ranks add up are integers (Metric). This requires
/// ranks with equal weights, processors and numbers of threads (RuntimeOptions::threads), since
/// LibTorch's operators depend on these. Costs one all-reduce of the counts: 0.6 KB for a mean, 8
/// bytes per cell for a ConfusionMatrix, 16 bytes for other metrics.
///
/// `options`: a Runtime, a Trainer or EvaluateOptions. `model`: a torch::nn module, its holder or
/// pointer, or a torch::jit::Module, on the device of the Runtime. `loader`: a ValidationLoader
/// (Runtime::validation_loader), or a Loader. Of a Loader all samples are used, in batches of its
/// batch_size and in the order of the dataset; its position does not change, so a Loader that
/// trains may be evaluated at any time. `metrics`: one or more, each a Metric. A metric that is a
/// variable can be read afterwards.
/// The first metric may be preceded by a function of the batch, which runs the model:
///   [&](const auto& batch) { return lockstep::Prediction{model->forward(...), ...}; }
/// It returns a Prediction, or a tensor, which is then compared with the target of the batch. It
/// gets the batch on the host, as the dataset made it (see moved()). Without a function, a batch is
/// a tensor, a pair, a tuple of two, or a struct with `data` and `target`; the model gets its first
/// part, moved to the device.
///
/// While it runs, the model is in eval mode (EvalMode) and gradients are off; both are restored,
/// also if an exception leaves. The forward runs under the autocast of the Trainer or of
/// EvaluateOptions::precision. Random operators on the host draw numbers that belong to the batch
/// (SampleRandom), so the random numbers of training do not change. Snapshots do not change.
/// Call it between windows or within, on every rank, with the same arguments; the function must not
/// communicate. Threads: one.
/// Errors: if a sample, the model or a metric throws on any rank, every rank throws the same Error
/// after all ranks are done, with the exit code of the exception. The metrics are then empty.
template <typename Network, typename Dataset, typename First, typename... Rest>
Evaluation evaluate(const EvaluateOptions& options, Network& model,
                    const ValidationLoader<Dataset>& loader, First&& first, Rest&&... rest) {
  if constexpr (detail::kIsMetric<First>) {
    auto forward = [&](const auto& batch) {
      using Parts = detail::BatchParts<std::decay_t<decltype(batch)>>;
      static_assert(Parts::known,
                    "evaluate(): a batch of this type needs a function, before the metrics, that "
                    "returns a lockstep::Prediction");
      return detail::call_network(model, moved(Parts::data(batch), options.device()));
    };
    return detail::evaluate_with(options, model, loader, forward, {&first, &rest...});
  } else {
    static_assert(sizeof...(Rest) > 0,
                  "evaluate() needs a metric after the function, such as lockstep::Accuracy()");
    static_assert((detail::kIsMetric<Rest> && ...), "evaluate(): an argument is not a Metric");
    return detail::evaluate_with(options, model, loader, first, {&rest...});
  }
}
template <typename Network, typename Dataset, typename... Rest>
Evaluation evaluate(const EvaluateOptions& options, Network& model, const Loader<Dataset>& loader,
                    Rest&&... rest) {
  return evaluate(options, model, ValidationLoader<Dataset>(loader), std::forward<Rest>(rest)...);
}

}  // namespace lockstep
