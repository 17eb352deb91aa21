// Gradients of backwards that are not the step's own: networks that train through one another.
#include <lockstep/amp/autocast.h>
#include <lockstep/runtime/data_parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

amp::LossScalerOptions scale_of(double scale) {
  return amp::LossScalerOptions().init_scale(scale).growth_interval(4);
}

std::vector<Precision> precisions(double scale) {
  return {Precision::O0(), Precision::O0().wire(at::kHalf).loss_scale(scale_of(scale)),
          Precision::O1().loss_scale(scale_of(scale)), Precision::O2().loss_scale(scale_of(scale))};
}

/// Maps 4 numbers to 4, or to one score.
std::shared_ptr<torch::nn::SequentialImpl> network(int64_t outputs, uint64_t seed) {
  at::manual_seed(seed);
  auto made = std::make_shared<torch::nn::SequentialImpl>(
      torch::nn::Linear(4, 8), torch::nn::Functional(at::tanh), torch::nn::Linear(8, outputs));
  made->to(testing::device());
  return made;
}

at::Tensor score_loss(const at::Tensor& scores, double target) {
  return (scores.to(at::kFloat) - target).square().mean();
}

/// A GAN of two Trainers with a scaler each.
struct Gan {
  Gan(const Precision& of_g, const Precision& of_d, int64_t accumulate)
      : g(network(4, 3)),
        d(network(1, 4)),
        tg(runtime(), g, AdamW(1e-2), TrainerOptions().precision(of_g).accumulate(accumulate)),
        td(runtime(), d, SGD(0.1), TrainerOptions().precision(of_d).accumulate(accumulate)) {}

  at::Tensor noise(int64_t step) const {
    return drawn({6, 4}, static_cast<uint64_t>(step * 64 + runtime().rank()));
  }
  StepReport step_d(int64_t step) {
    return td.step([&] {
      const at::Tensor fake = g->forward(noise(step)).detach();
      return score_loss(d->forward(noise(step + 1000) + 2), 1.0) +
             score_loss(d->forward(fake), 0.0);
    });
  }
  StepReport step_g(int64_t step, float factor = 1.0F) {
    return tg.step(
        [&] { return score_loss(d->forward(g->forward(noise(step + 2000))), 1.0) * factor; });
  }
  at::Tensor masters() const { return flat({flat_masters(tg), flat_masters(td)}); }

  std::shared_ptr<torch::nn::SequentialImpl> g, d;
  Trainer tg, td;
};

void freeze(torch::nn::Module& module, bool frozen) {
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(!frozen);
  }
}

TEST(OwnGradients, TheNaturalLoopOfAGanIsTheOneWithAFrozenDiscriminator) {
  const auto of_g = precisions(64);
  const auto of_d = precisions(1024);
  for (size_t p = 0; p < of_g.size(); ++p) {
    for (const int64_t accumulate : {1, 2}) {
      Gan natural(of_g[p], of_d[p], accumulate);
      Gan frozen(of_g[p], of_d[p], accumulate);
      const at::Tensor start = natural.masters();
      for (int64_t step = 0; step < 8; ++step) {
        const float factor = step == 5 ? testing::overflow_factor : 1.0F;
        natural.step_d(step);
        natural.step_g(step, factor);
        frozen.step_d(step);
        freeze(*frozen.d, true);
        frozen.step_g(step, factor);
        freeze(*frozen.d, false);
      }
      const std::string what = of_g[p].describe() + c10::str(" accumulate ", accumulate);
      EXPECT_TRUE(at::equal(natural.masters(), frozen.masters())) << what;
      EXPECT_FALSE(at::equal(natural.masters(), start)) << what;
      EXPECT_EQ(natural.td.loss_scale(), frozen.td.loss_scale()) << what;
      EXPECT_EQ(natural.tg.loss_scale(), frozen.tg.loss_scale()) << what;
      EXPECT_EQ(natural.td.updates(), 8 / accumulate) << what;  // G's overflow is G's alone
      EXPECT_EQ(natural.tg.updates(), 8 / accumulate - 1) << what;
      EXPECT_TRUE(natural.td.replicas_agree() && natural.tg.replicas_agree()) << what;
    }
  }
}

TEST(OwnGradients, AStepSeesWhatAnotherTrainerUpdatedInItsOpenWindow) {
  // In bf16, LibTorch's own choice for the CPU, nothing else than the update clears casts.
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    Gan gan(Precision::O0(), Precision::O0(), 1);
    const auto d = network(1, 5);
    Trainer open(runtime(), d, SGD(0.1),
                 TrainerOptions().precision(Precision::O1(dtype)).accumulate(4));
    std::vector<at::Tensor> seen;
    const auto look = [&] {
      open.step([&] {
        seen.push_back(gan.g->forward(gan.noise(0)).detach());
        return score_loss(d->forward(seen.back()), 0.0);
      });
    };
    look();
    gan.step_g(1);
    look();
    EXPECT_FALSE(at::equal(seen[0], seen[1])) << dtype;
    gan.tg.backward(score_loss(gan.d->forward(gan.g->forward(gan.noise(2))), 1.0));
    gan.tg.update();
    look();
    EXPECT_FALSE(at::equal(seen[1], seen[2])) << dtype;
    const amp::Autocast autocast(testing::device().type(), dtype);
    amp::Autocast::clear_cache();
    EXPECT_TRUE(at::equal(seen[2], gan.g->forward(gan.noise(0)))) << dtype;
  }
}

/// Two runs of six windows; `between` happens before each micro-batch of the second.
void expect_undisturbed(int64_t accumulate, const Precision& precision,
                        const std::function<void(Mlp&, int64_t)>& between) {
  std::vector<at::Tensor> ends;
  for (const bool disturbed : {false, true}) {
    at::manual_seed(11);
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions().precision(precision).accumulate(accumulate));
    for (int64_t step = 0; step < 6 * accumulate; ++step) {
      if (disturbed) {
        between(*model, step);
      }
      trainer.step([&] { return testing::scaled_loss(*model, step); });
    }
    EXPECT_EQ(trainer.updates(), 6);
    ends.push_back(flat_masters(trainer));
  }
  EXPECT_TRUE(at::equal(ends[0], ends[1])) << precision.describe() << " " << accumulate;
}

TEST(OwnGradients, AStrayBackwardIsTheProgramsOwn) {
  for (const Precision& precision : precisions(256)) {
    for (const int64_t accumulate : {1, 2}) {
      expect_undisturbed(accumulate, precision, [&](Mlp& model, int64_t step) {
        const at::Tensor expected = model.second->weight.detach().to(at::kFloat).sum(0);
        const amp::Autocast autocast(testing::device().type(), precision.compute_dtype(),
                                     precision.autocast());
        at::Tensor x = drawn({1, 8}, static_cast<uint64_t>(step)).requires_grad_(true);
        model.second->forward(x).sum().backward();
        EXPECT_TRUE(at::allclose(x.grad()[0], expected, 1e-2, 1e-2));
        EXPECT_TRUE(
            at::allclose(model.second->weight.grad()[1].to(at::kFloat), x[0].detach(), 1e-2, 1e-2));
        model.second->weight.grad().mul_(100);
        EXPECT_FALSE(model.first->weight.grad().defined());
      });
    }
  }
}

TEST(OwnGradients, GradientsOfAStrayBackwardStayUntilTheNextStep) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  Trainer trainer(runtime(), model, SGD(1.0));
  const auto own = [&] { return trainer.step([&] { return model->weight.sum(); }); };
  own();
  EXPECT_FALSE(model->weight.grad().defined());
  for (const double sum : {2.0, 4.0}) {
    (model->weight * 2).sum().backward();
    EXPECT_EQ(model->weight.grad()[0].item<double>(), sum);  // summed, as LibTorch does
  }
  own();
  EXPECT_FALSE(model->weight.grad().defined());
  EXPECT_TRUE(at::equal(model->weight.detach(), testing::full({3}, -1.0)));
}

/// The loss of a batch moved along the sign of its gradient (FGSM), which `inner` finds.
Loss adversarial(Mlp& model, int64_t step,
                 const std::function<at::Tensor(const at::Tensor& loss, at::Tensor& x)>& inner) {
  const testing::Batch batch = testing::mlp_batch(step, runtime().rank());
  at::Tensor x = batch.x.clone().requires_grad_(true);
  const at::Tensor gradient = inner(model.loss(x, batch.y), x);
  return model.loss(batch.x + 0.1 * gradient.sign(), batch.y);
}

TEST(OwnGradients, ABackwardWithinTheClosureIsNotTheSteps) {
  for (const Precision& precision : precisions(256)) {
    for (const int64_t accumulate : {1, 2}) {
      std::vector<at::Tensor> ends;
      for (const bool by_backward : {false, true}) {
        at::manual_seed(11);
        const auto model = std::make_shared<Mlp>();
        Trainer trainer(runtime(), model, AdamW(1e-2),
                        TrainerOptions().precision(precision).accumulate(accumulate));
        for (int64_t step = 0; step < 4 * accumulate; ++step) {
          if (step == 2) {
            trainer.diagnose_next_overflow();  // replays run the closure too
          }
          trainer.step([&] {
            return adversarial(*model, step, [&](const at::Tensor& loss, at::Tensor& x) {
              if (by_backward) {
                loss.backward();
                return x.grad();
              }
              return torch::autograd::grad({loss}, {x})[0];
            });
          });
        }
        EXPECT_EQ(trainer.updates(), 4);
        ends.push_back(flat_masters(trainer));
      }
      EXPECT_TRUE(at::equal(ends[0], ends[1])) << precision.describe() << " " << accumulate;
    }
  }
}

TEST(OwnGradients, ASparseGradientOfAnotherNetworksLossIsPlain) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 3).sparse(true));
  table->to(testing::device());
  Trainer trainer(runtime(), table, SGD(1.0));
  const at::Tensor rows = testing::full({2}, 1, at::kLong);
  const auto own = [&] { trainer.step([&] { return table->weight.square().sum(); }); };
  own();
  table->forward(rows).sum().backward();
  EXPECT_TRUE(table->weight.grad().is_sparse());
  own();
  EXPECT_EQ(trainer.updates(), 2);
}

/// A generator and a discriminator in one module.
struct Pair : torch::nn::Module {
  Pair(std::shared_ptr<torch::nn::SequentialImpl> generator,
       std::shared_ptr<torch::nn::SequentialImpl> discriminator) {
    register_module("g", std::move(generator));
    register_module("d", std::move(discriminator));
  }
};

TEST(OwnGradients, OneLossForTwoTrainersIsRefusedWithAdviceThatHolds) {
  Gan gan(Precision::O0(), Precision::O0(), 1);
  const auto loss = [&] { return score_loss(gan.d->forward(gan.g->forward(gan.noise(0))), 1.0); };
  const at::Tensor start = gan.masters();
  const at::Tensor shared = loss();
  gan.td.backward(shared);
  const std::string message = error_of([&] { gan.tg.backward(shared); });
  EXPECT_THAT(message, HasSubstr("given to a backward before, or to another Trainer"));
  EXPECT_THAT(message, HasSubstr("compute the loss anew"));
  EXPECT_THAT(message, HasSubstr("one Trainer"));
  gan.td.abandon();
  EXPECT_TRUE(at::equal(gan.masters(), start));
  EXPECT_THAT(error_of([&] {
                const at::Tensor same = loss();
                gan.td.step([&] { return same; });
                gan.tg.step([&] { return same; });
              }),
              HasSubstr("given to a backward before, or to another Trainer"));
  // The first advice: anew in each step.
  gan.td.step([&] { return loss(); });
  gan.tg.step([&] { return loss(); });
  EXPECT_EQ(gan.tg.updates(), 1);

  // The second: one Trainer over both, with a group.
  const auto g = network(4, 3);
  const auto d = network(1, 4);
  const at::Tensor g_start = flat(g->parameters());
  const at::Tensor d_start = flat(d->parameters());
  Trainer both(
      runtime(), std::make_shared<Pair>(g, d),
      SGD(0.5).group([](const ModelTensor& entry) { return entry.name[0] == 'd'; }, SGD(0.0)));
  both.step([&] { return score_loss(d->forward(g->forward(gan.noise(0))), 1.0); });
  EXPECT_FALSE(at::equal(flat(g->parameters()), g_start));
  EXPECT_TRUE(at::equal(flat(d->parameters()), d_start));
}

/// Runs a backward of its own inside the backward, as reentrant checkpoints do.
template <bool kByGrad>
struct Inner : torch::autograd::Function<Inner<kByGrad>> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outer) {
    const at::AutoGradMode with_grad(true);
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0].detach().requires_grad_(true);
    const at::Tensor y = (x * saved[1] * outer[0].detach()).sum();
    if (kByGrad) {
      auto gradients = torch::autograd::grad({y}, {x, saved[1]});
      return {gradients[0], gradients[1]};
    }
    y.backward();
    return {x.grad(), at::Tensor()};
  }
};

TEST(OwnGradients, TwoGradientsInOneBackwardAreRefusedInATrainersWords) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  Trainer trainer(runtime(), model, SGD(1.0));
  const at::Tensor x = testing::ones({3}).requires_grad_(true);
  const std::string message = error_of([&] {
    trainer.step([&] { return Inner<false>::apply(x, model->weight).sum() + model->weight.sum(); });
  });
  EXPECT_THAT(message, HasSubstr("parameter weight got two gradients in one backward"));
  EXPECT_THAT(message, HasSubstr("torch::autograd::grad()"));
  EXPECT_THAT(message, Not(HasSubstr("finish()")));
  trainer.step([&] { return Inner<true>::apply(x, model->weight).sum() + model->weight.sum(); });
  EXPECT_TRUE(at::equal(model->weight.detach(), testing::full({3}, -1.0)));
}

/// Three updates of a GAN by hand over two DataParallels; `step_of_g` runs the backward of G.
at::Tensor hand_gan(const std::function<void(DataParallel& of_d, torch::nn::Module& d,
                                             const std::function<void()>& backward)>& step_of_g) {
  const auto g = network(4, 3);
  const auto d = network(1, 4);
  DataParallel of_g(runtime().communicator(), g);
  DataParallel of_d(runtime().communicator(), d);
  for (int64_t step = 0; step < 3; ++step) {
    const at::Tensor noise = drawn({6, 4}, static_cast<uint64_t>(step * 64 + runtime().rank()));
    testing::clear_gradients(*d);
    (score_loss(d->forward(noise + 2), 1.0) + score_loss(d->forward(g->forward(noise).detach()), 0))
        .backward();
    of_d.finish();
    testing::descend(*d, 0.1);
    testing::clear_gradients(*g);
    step_of_g(of_d, *d, [&] { score_loss(d->forward(g->forward(noise)), 1.0).backward(); });
    of_g.finish();
    testing::descend(*g, 0.1);
  }
  return flat({flat(g->parameters()), flat(d->parameters())});
}

TEST(OwnGradients, DataParallelSaysWhatHappenedAndItsAdviceHolds) {
  const std::string message = error_of([] {
    hand_gan([](DataParallel&, torch::nn::Module&, const auto& backward) { backward(); });
  });
  EXPECT_THAT(message, HasSubstr("got a gradient twice"));
  EXPECT_THAT(message, HasSubstr("another network's loss that runs through this model"));
  EXPECT_THAT(message, HasSubstr("no_sync()"));
  EXPECT_THAT(message, HasSubstr("zero_grad()"));
  EXPECT_THAT(message, HasSubstr("requires_grad_(false)"));
  const at::Tensor quiet =
      hand_gan([](DataParallel& of_d, torch::nn::Module& d, const auto& backward) {
        {
          const auto no_sync = of_d.no_sync();
          backward();
        }
        d.zero_grad();
      });
  const at::Tensor frozen = hand_gan([](DataParallel&, torch::nn::Module& d, const auto& backward) {
    freeze(d, true);
    backward();
    freeze(d, false);
  });
  EXPECT_TRUE(at::equal(quiet, frozen));
}

}  // namespace
}  // namespace lockstep
