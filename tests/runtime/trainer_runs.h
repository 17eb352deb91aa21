#pragma once

#include <ATen/ATen.h>
#include <lockstep/runtime/trainer.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "across_ranks.h"
#include "flat_tensors.h"
#include "models.h"

namespace lockstep::testing {

struct Batch {
  at::Tensor x;
  at::Tensor y;
};

/// Five rows for an Mlp that depend on the step and the rank.
inline Batch mlp_batch(int64_t step, int rank) {
  const auto seed = static_cast<uint64_t>(step * 64 + rank);
  return {drawn({5, 4}, seed), drawn({5, 2}, seed + 1'000'000)};
}

/// Multiplies a loss so that every gradient overflows.
constexpr float overflow_factor = std::numeric_limits<float>::infinity();

/// fp16 with a scale that none of these models overflows by itself.
inline Precision half_precision() {
  return Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256));
}

/// One closure's loss of this rank, `factor` times.
inline Loss scaled_loss(Mlp& model, int64_t step, float factor = 1.0F) {
  const Batch batch = mlp_batch(step, runtime().rank());
  return model.loss(batch.x, batch.y) * factor;
}

/// All masters one after the other: a copy.
inline at::Tensor flat_masters(const Trainer& trainer) {
  return flat(trainer.masters());
}

/// |ours - expected| / |expected|.
inline double relative_distance(const at::Tensor& ours, const at::Tensor& expected) {
  return ((ours - expected).norm() / expected.norm()).item<double>();
}

/// True if each weight of `model` is its master, cast.
inline bool is_cast_of_masters(const torch::nn::Module& model, const Trainer& trainer) {
  const auto weights = model.named_parameters();
  bool equal = true;
  for (const auto& master : trainer.masters()) {
    const at::Tensor& weight = weights[master.first];
    equal = equal && at::equal(weight, master.second.to(weight.scalar_type()));
  }
  return equal;
}

}  // namespace lockstep::testing
