// Gradients that LibTorch hands over with a minus that is not in their memory yet.
#include <ATen/ATen.h>
#include <lockstep/runtime/data_parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/sgd.h>

#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// The imaginary part of a conjugate: its backward makes the minus lazily.
struct LazyMinus : torch::autograd::Function<LazyMinus> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return -x; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0]._neg_view()};
  }
};

at::Tensor loss_of(const at::Tensor& weight) {
  return (LazyMinus::apply(weight) + 3).square().mean();
}

/// `updates` updates of plain LibTorch.
at::Tensor plain(const at::Tensor& start, int updates) {
  const at::Tensor weight = start.clone().requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.1);
  for (int i = 0; i < updates; ++i) {
    optimizer.zero_grad();
    loss_of(weight).backward();
    optimizer.step();
  }
  return weight.detach();
}

std::vector<at::Tensor> starts() {
  return {at::ones({}),
          at::ones({1}),
          at::ones({1, 1}),
          testing::drawn({7}, 3),
          testing::drawn({3, 5}, 4),
          testing::drawn({3, 5}, 5).t()};
}

TEST(LazyMinus, IsAppliedToTheGradientOfATrainer) {
  const std::vector<TrainerOptions> settings = {
      TrainerOptions(), TrainerOptions().accumulate(2), TrainerOptions().shard_optimizer(true),
      TrainerOptions().reproducible(true), TrainerOptions().losses(2)};
  for (size_t i = 0; i < settings.size(); ++i) {
    for (const at::Tensor& start : starts()) {
      SCOPED_TRACE(c10::str("setting ", i, ", sizes ", start.sizes()));
      const auto model = std::make_shared<OneWeight>(start.clone());
      Trainer trainer(runtime(), model, SGD(0.1), settings[i]);
      for (int64_t step = 0; step < 3 * settings[i].accumulate(); ++step) {
        trainer.step([&]() -> Loss {
          const at::Tensor loss = loss_of(model->weight);
          return settings[i].losses() > 1 ? Loss::several({loss * 0.5, loss * 0.5}) : Loss(loss);
        });
      }
      EXPECT_TRUE(at::allclose(model->weight, plain(start, 3), 1e-5, 1e-6));
    }
  }
}

TEST(LazyMinus, IsAppliedToTheGradientOfDataParallel) {
  for (const at::Tensor& start : starts()) {
    for (const bool is_half : {false, true}) {
      SCOPED_TRACE(c10::str("sizes ", start.sizes(), is_half ? ", fp16 wire" : ""));
      const auto model = std::make_shared<OneWeight>(start.clone());
      DataParallelOptions options;
      if (is_half) {
        options.wire(at::kHalf);
      }
      DataParallel parallel(runtime().communicator(), model, options);
      torch::optim::SGD optimizer({model->weight}, 0.1);
      for (int i = 0; i < 3; ++i) {
        optimizer.zero_grad();
        loss_of(model->weight).backward();
        parallel.finish();
        optimizer.step();
      }
      EXPECT_TRUE(at::allclose(model->weight.detach(), plain(start, 3), is_half ? 1e-2 : 1e-5,
                               is_half ? 1e-2 : 1e-6));
    }
  }
}

TEST(LazyMinus, OfComplexArithmeticKeepsItsSign) {
  const auto loss = [](const at::Tensor& p) {
    return at::abs(at::conj(at::complex(at::ones_like(p), p)) +
                   at::complex(at::full_like(p, 0.5), at::full_like(p, 0.7)))
        .sum();
  };
  const auto model = std::make_shared<OneWeight>(at::zeros({1}));
  Trainer trainer(runtime(), model, SGD(0.1));
  const at::Tensor expected = at::zeros({1}).requires_grad_();
  torch::optim::SGD optimizer({expected}, 0.1);
  for (int i = 0; i < 20; ++i) {
    trainer.step([&] { return loss(model->weight); });
    optimizer.zero_grad();
    loss(expected).backward();
    optimizer.step();
  }
  EXPECT_TRUE(at::allclose(model->weight, expected, 1e-5, 1e-6));
}

}  // namespace
}  // namespace lockstep
