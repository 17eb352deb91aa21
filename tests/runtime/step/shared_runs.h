#pragma once

#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "update_runs.h"

namespace lockstep::testing {

inline TrainerOptions shared(const TrainerOptions& options = {}) {
  return TrainerOptions(options).shard_optimizer(true).share_weights(true);
}

inline BucketOptions small_buckets() {
  return BucketOptions().first_bucket_bytes(16).bucket_bytes(100);
}

inline std::vector<Precision> levels() {
  return {at_scale(Precision::O0()),
          at_scale(Precision::O0().wire(at::kHalf)),
          at_scale(Precision::O1(at::kBFloat16)),
          at_scale(Precision::O2()),
          at_scale(Precision::O2(at::kBFloat16)),
          at_scale(Precision::O2(at::kBFloat16).remainders()),
          at_scale(Precision::O3(at::kBFloat16).stochastic_rounding())};
}

/// With masters that are the weights, masters beside them, and none.
inline std::vector<Precision> kinds_of_masters() {
  return {at_scale(Precision::O0()), at_scale(Precision::O2(at::kBFloat16)),
          at_scale(Precision::O3(at::kBFloat16))};
}

/// A model of 1 MiB, most of it in one weight.
struct Wide : torch::nn::Module {
  Wide() : layer(register_module("layer", torch::nn::Linear(512, 512))) {
    last = register_parameter("last", at::ones({8}));
    to(device());
  }
  at::Tensor loss(int64_t step) {
    const auto seed = static_cast<uint64_t>(step * 64 + runtime().rank());
    const at::Tensor x = drawn({2, 512}, seed);
    return layer->forward(x).to(at::kFloat).square().mean() + last.to(at::kFloat).square().sum();
  }
  torch::nn::Linear layer;
  at::Tensor last;
};

struct WideRun {
  explicit WideRun(const TrainerOptions& options)
      : model((at::manual_seed(3), std::make_shared<Wide>())),
        trainer(runtime(), model, AdamW(1e-3), options) {}
  void train(int64_t updates) {
    for (int64_t i = 0; i < updates; ++i, ++done) {
      trainer.step([&] { return Loss(model->loss(done)); });
    }
  }
  std::shared_ptr<Wide> model;
  Trainer trainer;
  int64_t done = 0;
};

}  // namespace lockstep::testing
