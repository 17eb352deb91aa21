// What no update moves keeps its fp32 values on disk where the model has it in 16 bits.
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// An Mlp whose first layer is frozen, and that adds a constant to its input.
struct HalfFrozen : Mlp {
  HalfFrozen() : shift(register_buffer("shift", drawn({4}, 3))) {
    const at::NoGradGuard no_grad;
    first->weight.copy_(drawn({8, 4}, 1));
    first->bias.copy_(drawn({8}, 2));
    for (const at::Tensor& parameter : first->parameters()) {
      parameter.requires_grad_(false);
    }
  }
  at::Tensor shift;
};

std::shared_ptr<HalfFrozen> zeros() {
  const auto model = std::make_shared<HalfFrozen>();
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : {model->first->weight, model->first->bias, model->shift}) {
    tensor.zero_();
  }
  return model;
}

/// Trains one update and saves into `folder`.
void train_and_save(HalfFrozen& model, Trainer& trainer) {
  trainer.step([&] { return scaled_loss(model, 0); });
  trainer.save();
  EXPECT_EQ(trainer.finish_saving()->error, std::nullopt);
}

/// What is on the disk, in an fp32 model.
std::shared_ptr<HalfFrozen> on_disk(const std::string& folder) {
  auto model = zeros();
  Trainer trainer(runtime(), model, SGD(0.1));
  trainer.load_weights(folder);
  return model;
}

void expect_exact(const HalfFrozen& found) {
  const HalfFrozen given;
  EXPECT_TRUE(at::equal(found.first->weight, given.first->weight));
  EXPECT_TRUE(at::equal(found.first->bias, given.first->bias));
  EXPECT_TRUE(at::equal(found.shift, given.shift));
}

TEST(FrozenLayers, AFrozenFp32LayerKeepsItsBitsOnDisk) {
  for (const Precision& precision :
       {Precision::O2(at::kBFloat16), Precision::O2(at::kHalf), Precision::O3(at::kBFloat16)}) {
    const auto options = TrainerOptions().precision(precision);
    const SharedFolder folder;
    {
      const auto model = std::make_shared<HalfFrozen>();
      Trainer trainer(runtime(), model, SGD(0.1), options);
      ASSERT_EQ(model->first->weight.scalar_type(), precision.compute_dtype());
      trainer.resume(folder.file("run"));
      train_and_save(*model, trainer);
    }
    expect_exact(*on_disk(folder.file("run")));

    // Through a model that was made of other values, by resume() and by load_weights().
    const auto resumed = zeros();
    Trainer goes_on(runtime(), resumed, SGD(0.1), options);
    goes_on.resume(folder.file("run"));
    EXPECT_TRUE(
        at::equal(resumed->first->bias, HalfFrozen().first->bias.to(precision.compute_dtype())));
    train_and_save(*resumed, goes_on);
    expect_exact(*on_disk(folder.file("run")));

    const auto loaded = zeros();
    Trainer another(runtime(), loaded, SGD(0.1), options);
    another.load_weights(folder.file("run"));
    another.resume(folder.file("another"));
    train_and_save(*loaded, another);
    expect_exact(*on_disk(folder.file("another")));
  }
}

TEST(FrozenLayers, WhatIsWrittenToAFrozenLayerLaterIsSaved) {
  const SharedFolder folder;
  const auto model = std::make_shared<HalfFrozen>();
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16)));
  trainer.resume(folder.file("run"));
  model->first->bias.fill_(3.0);
  train_and_save(*model, trainer);
  const auto found = on_disk(folder.file("run"));
  EXPECT_TRUE(at::equal(found->first->bias, testing::full({8}, 3.0)));
  EXPECT_TRUE(at::equal(found->first->weight, HalfFrozen().first->weight));
}

}  // namespace
}  // namespace lockstep
