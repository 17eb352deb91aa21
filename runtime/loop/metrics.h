#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What a model computed for one batch, and what was right. A metric that needs no target ignores
/// it; it may then be undefined.
struct Prediction {
  at::Tensor output;
  at::Tensor target;
};

/// A number that evaluate() computes over all samples of a loader.
///
/// A metric counts in integers only: evaluate() sets counts() to 0, calls add() for each batch of
/// this rank, and sums the counts of all ranks. So the result has the same bits on every rank and
/// on any number of ranks. A class of the program derives from Metric and keeps everything in
/// counts().
/// Ranks: add() and value() are local. Threads: one.
class Metric {
 public:
  virtual ~Metric() = default;

  const std::string& name() const { return name_; }
  /// Whether the lower of two values is better: true for a loss, false for an accuracy. Unset: the
  /// metric does not say. Trainer::save(), ReduceOnPlateau and EarlyStopping follow it.
  std::optional<bool> lower_is_better() const { return lower_is_better_; }
  /// Counts one batch. Throws Error if sizes or types do not fit.
  virtual void add(const Prediction& batch) = 0;
  /// The result of what was counted since the last evaluate() began. NaN if nothing was counted.
  virtual double value() const = 0;
  std::vector<int64_t>& counts() { return counts_; }
  const std::vector<int64_t>& counts() const { return counts_; }

 protected:
  /// `counts`: how many integers it counts in.
  Metric(std::string name, size_t counts, std::optional<bool> lower_is_better = std::nullopt)
      : name_(std::move(name)), lower_is_better_(lower_is_better), counts_(counts) {}

 private:
  std::string name_;
  std::optional<bool> lower_is_better_;
  std::vector<int64_t> counts_;
};

/// A target with this class number is not counted: padding, for example. LibTorch's default.
constexpr int64_t kIgnoredTarget = -100;

/// The share of targets whose class is among the k classes with the highest scores. `output`:
/// scores of sizes [..., classes]; `target`: class numbers of sizes [...]. Between equal scores the
/// smaller class number is the higher one. A row of scores with a NaN counts as wrong.
class TopK : public Metric {
 public:
  /// An empty `name` means "top5" for k = 5. Throws Error if k < 1.
  explicit TopK(int64_t k, std::string name = "");
  void add(const Prediction& batch) override;
  double value() const override;

 private:
  int64_t k_;
};

/// The share of targets whose class has the highest score: TopK with k = 1.
class Accuracy : public TopK {
 public:
  explicit Accuracy(std::string name = "accuracy") : TopK(1, std::move(name)) {}
};

/// The mean of numbers that a function computes for each sample (or token) of a batch. The sum of
/// the numbers is exact and is rounded once at the end.
class MeanOf : public Metric {
 public:
  using Function = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

  /// `function` returns a tensor of one dimension or more; each element counts once. Without a
  /// function the elements of `output` count: the function passed to evaluate() has computed them.
  /// `lower_is_better`: of two values of this metric; it is worth saying for an accuracy (false).
  explicit MeanOf(std::string name, Function function = nullptr,
                  std::optional<bool> lower_is_better = std::nullopt);
  /// Throws Error if the function returns one number without dimension, such as a loss that is a
  /// mean already: batches of different sizes would then have equal weights.
  void add(const Prediction& batch) override;
  double value() const override;

 private:
  Function function_;
};

/// The mean cross entropy. Sizes as for TopK; the loss of each target is computed in fp32, or in
/// fp64 from fp64 scores. An `output` of one dimension holds losses already, which the function
/// passed to evaluate() has computed, if there is no target or it has two dimensions or more (a
/// text); else return lockstep::Prediction{losses, {}}. For another loss use MeanOf.
class MeanLoss : public MeanOf {
 public:
  explicit MeanLoss(std::string name = "loss");
};

/// exp(mean cross entropy). Sizes as for MeanLoss, losses included.
class Perplexity : public MeanOf {
 public:
  explicit Perplexity(std::string name = "perplexity");
  double value() const override;
};

/// How often each class was predicted for each class. The prediction is the class with the highest
/// score (torch::argmax). Sizes as for TopK.
class ConfusionMatrix : public Metric {
 public:
  /// Throws Error if classes < 1.
  explicit ConfusionMatrix(int64_t classes, std::string name = "balanced_accuracy");
  void add(const Prediction& batch) override;
  /// The mean, over the classes that occur, of the share of their targets that was predicted.
  double value() const override;
  /// int64, [classes, classes]: row = target, column = prediction.
  at::Tensor matrix() const;

 private:
  int64_t classes_;
};

}  // namespace lockstep
