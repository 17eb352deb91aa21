#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/evaluate.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test_device.h"

namespace lockstep::testing {

/// Samples of 4 numbers and one of 3 classes. Sample `fails_at` cannot be loaded.
struct Rows {
  int64_t count = 0;
  int64_t fails_at = -1;

  int64_t size() const { return count; }
  std::pair<at::Tensor, int64_t> get(size_t index) const {
    const auto number = static_cast<int64_t>(index);
    LOCKSTEP_CHECK_CODE(number != fails_at, ExitCode::out_of_memory, "no memory for it");
    return {at::randn({4}, at::detail::createCPUGenerator(index)), number * number % 3};
  }
};

/// All that behaves otherwise in training mode: dropout and batch norm.
struct Classifier : torch::nn::Module {
  Classifier()
      : first(register_module("first", torch::nn::Linear(4, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        drop(register_module("drop", torch::nn::Dropout(0.5))),
        last(register_module("last", torch::nn::Linear(8, 3))) {
    to(device());
  }
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(drop->forward(at::tanh(norm->forward(first->forward(x)))));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};

/// The same weights each time.
inline std::shared_ptr<Classifier> classifier() {
  at::manual_seed(5);
  return std::make_shared<Classifier>();
}

/// The mode of each module, parents before children.
inline std::vector<bool> modes(const torch::nn::Module& module) {
  std::vector<bool> found{module.is_training()};
  for (const auto& child : module.modules(/*include_self=*/false)) {
    found.push_back(child->is_training());
  }
  return found;
}

/// The bits of all values.
inline std::vector<uint64_t> bits(const Evaluation& evaluation) {
  std::vector<uint64_t> found;
  for (const auto& [name, value] : evaluation.values) {
    std::memcpy(&found.emplace_back(), &value, sizeof(value));
  }
  return found;
}

/// How often each sample was seen. Needs samples that carry their number as data.
class Seen : public Metric {
 public:
  explicit Seen(int64_t samples) : Metric("seen", static_cast<size_t>(samples)) {}
  void add(const Prediction& batch) override {
    const at::Tensor numbers = batch.output.to(at::kCPU, at::kLong).contiguous();
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      ++counts()[static_cast<size_t>(numbers.const_data_ptr<int64_t>()[i])];
    }
  }
  double value() const override { return 0.0; }
};

/// Sample i is the number i.
struct OwnNumbers {
  int64_t count = 0;
  int64_t size() const { return count; }
  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
};

}  // namespace lockstep::testing
