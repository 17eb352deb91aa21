// Complex parameters train as their real view.
#include <ATen/ATen.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/muon_optimizer.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/load_weights.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/models.h"
#include "runtime/snapshot_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

using detail::real_view;

using Tensors = std::vector<at::Tensor>;

/// Complex numbers that depend on `seed` alone.
at::Tensor pairs(std::vector<int64_t> sizes, uint64_t seed,
                 at::ScalarType dtype = at::kComplexFloat) {
  sizes.push_back(2);
  return at::view_as_complex(drawn(sizes, seed)).to(dtype);
}

/// Parameters "p0", "p1", ... and a loss whose gradients are given.
struct Pairs : torch::nn::Module {
  explicit Pairs(const Tensors& values) {
    for (const at::Tensor& value : values) {
      all.push_back(register_parameter("p" + std::to_string(all.size()), value.clone()));
    }
  }
  at::Tensor loss(const Tensors& gradients) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < all.size(); ++i) {
      sum = sum + (at::view_as_real(all[i]) * at::view_as_real(gradients[i])).sum();
    }
    return sum;
  }
  Tensors all;
};

/// The largest difference, relative to the largest number.
double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = real_view(a.detach());
  const at::Tensor y = real_view(b.detach());
  return x.scalar_type() == y.scalar_type() && at::equal(x, y);
}

bool same(const std::vector<std::pair<std::string, at::Tensor>>& a,
          const std::vector<std::pair<std::string, at::Tensor>>& b) {
  bool equal = a.size() == b.size();
  for (size_t i = 0; equal && i < a.size(); ++i) {
    equal = a[i].first == b[i].first && same(a[i].second, b[i].second);
  }
  return equal;
}

// ---- Against torch.optim ----

/// What complex_python.py wrote about one dtype.
struct Python {
  explicit Python(at::ScalarType dtype)
      : prefix(dtype == at::kComplexFloat ? "complex64." : "complex128.") {}
  Tensors tensors(const std::string& name) const {
    Tensors result;
    for (std::string each = named(name, 0); file.find(each) != nullptr;
         each = named(name, result.size())) {
      result.push_back(at::view_as_complex(file.tensor(each).clone()));  // aligned for complex128
    }
    return result;
  }
  std::string named(const std::string& name, size_t index) const {
    return prefix + name + "." + std::to_string(index);
  }
  std::string prefix;
  snapshot::SafetensorsFile file{LOCKSTEP_COMPLEX_PYTHON};
};

template <typename Optimizer, typename Options>
std::shared_ptr<OptimizerSpec> of_torch(const Options& options) {
  return TorchOptimizer([options](Tensors masters) {
           return std::make_unique<Optimizer>(std::move(masters), options);
         })
      .clone();
}

/// The steps of complex_python.py, with the same gradients on every rank.
void expect_follows(const Python& python, const std::string& name, const OptimizerSpec& optimizer,
                    const TrainerOptions& options, double limit) {
  SCOPED_TRACE(python.prefix + name + (options.shard_optimizer() ? ", sharded" : ""));
  const auto model = std::make_shared<Pairs>(python.tensors("start"));
  Trainer trainer(runtime(), model, optimizer, TrainerOptions(options).ema(0.9));
  double norm = 0.0;
  for (int step = 0; step < 8; ++step) {
    const Tensors gradients = python.tensors("gradient." + std::to_string(step));
    norm = trainer.step([&] { return model->loss(gradients); }).grad_norm();
  }
  EXPECT_NEAR(norm, python.file.tensor(python.prefix + "norm").item<double>(), 1e-5);
  const Tensors expected = python.tensors(name);
  const Tensors averages = python.tensors(name + ".ema");
  const auto averaged = trainer.averaged();
  ASSERT_EQ(expected.size(), model->all.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(model->all[i].scalar_type(), expected[i].scalar_type());
    EXPECT_LE(distance(model->all[i].detach(), expected[i]), limit) << i;
    EXPECT_EQ(averaged[i].second.scalar_type(), expected[i].scalar_type());
    EXPECT_LE(distance(averaged[i].second, averages[i]), limit) << i;
  }
}

TEST(ComplexParameters, FollowPythonsTorchOptim) {
  const std::vector<std::pair<std::string, std::shared_ptr<OptimizerSpec>>> cases = {
      {"adamw", AdamW(1e-2).weight_decay(0.1).clone()},
      {"adam", Adam(1e-2).weight_decay(0.05).clone()},
      {"sgd", SGD(1e-2).weight_decay(0.1).clone()},
      {"momentum", SGD(1e-2).momentum(0.9).dampening(0.3).weight_decay(0.1).clone()},
      {"nesterov", SGD(1e-2).momentum(0.9).nesterov(true).clone()},
      {"adamw", of_torch<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).weight_decay(0.1))},
      {"amsgrad", of_torch<torch::optim::Adam>(torch::optim::AdamOptions(1e-2).amsgrad(true))},
      {"momentum",
       of_torch<torch::optim::SGD>(
           torch::optim::SGDOptions(1e-2).momentum(0.9).dampening(0.3).weight_decay(0.1))},
      {"rmsprop", of_torch<torch::optim::RMSprop>(
                      torch::optim::RMSpropOptions(1e-2).momentum(0.5).centered(true))},
      {"adagrad",
       of_torch<torch::optim::Adagrad>(torch::optim::AdagradOptions(1e-2).weight_decay(0.1))}};
  for (const at::ScalarType dtype : {at::kComplexFloat, at::kComplexDouble}) {
    const Python python(dtype);
    const double limit = dtype == at::kComplexFloat ? 2e-7 : 1e-15;
    for (const auto& [name, optimizer] : cases) {
      for (const bool shard : {false, true}) {
        expect_follows(python, name, *optimizer, TrainerOptions().shard_optimizer(shard), limit);
      }
    }
    expect_follows(python, "clipped_norm", AdamW(1e-2).weight_decay(0.01),
                   TrainerOptions().clip_grad_norm(2.0), 2e-6);
    expect_follows(python, "clipped_value", AdamW(1e-2).weight_decay(0.01),
                   TrainerOptions().clip_grad_value(0.5), limit);
  }
}

// ---- Against the same model with real parameters ----

/// A Fourier neural operator. Its complex weights are parameters, or the parameters are their real
/// views.
struct Fourier : torch::nn::Module {
  explicit Fourier(bool is_complex, at::ScalarType dtype = at::kComplexFloat)
      : lift(register_module("lift", torch::nn::Linear(1, 3))),
        project(register_module("project", torch::nn::Linear(3, 1))) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters()) {
      parameter.copy_(drawn(parameter.sizes(), 1));
    }
    const at::Tensor values[] = {pairs({3, 3, 4}, 2, dtype), pairs({}, 3, dtype),
                                 pairs({4, 3}, 4, dtype).t(), pairs({0}, 5, dtype)};
    for (size_t i = 0; i < 4; ++i) {
      const at::Tensor value = is_complex ? values[i] : at::view_as_real(values[i]);
      spectral.push_back(register_parameter("w" + std::to_string(i), value.clone()));
    }
    tied = register_parameter("tied", spectral[0]);
    to(testing::device());
  }
  at::Tensor weight(size_t i) const {
    return spectral[i].is_complex() ? spectral[i] : at::view_as_complex(spectral[i]);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor lifted = lift->forward(x).to(at::kFloat).transpose(1, 2);
    const at::Tensor modes = at::fft_rfft(lifted).slice(2, 0, 4);
    at::Tensor mixed = at::einsum("bix,iox->box", {modes.to(weight(0).scalar_type()), weight(0)});
    mixed = mixed * weight(1) + at::conj(mixed) * weight(2) + weight(3).sum();
    const at::Tensor back = at::fft_irfft(mixed, 8).transpose(1, 2).to(at::kFloat);
    return project->forward(at::tanh(back)).to(at::kFloat);
  }
  at::Tensor loss(uint64_t step) {
    const uint64_t seed = 100 + 16 * step + static_cast<uint64_t>(runtime().rank());
    return (forward(drawn({2, 8, 1}, seed)) - 0.5).square().mean();
  }
  torch::nn::Linear lift, project;
  Tensors spectral;
  at::Tensor tied;
};

/// Trains both forms in the same way and compares everything that a Trainer shows.
void expect_twins(const OptimizerSpec& optimizer, TrainerOptions options,
                  const std::string& trace) {
  SCOPED_TRACE(trace);
  const auto whole = std::make_shared<Fourier>(true);
  const auto split = std::make_shared<Fourier>(false);
  options.unused(UnusedParameters::detect);
  if (options.ema() == 0.0 && !options.local_updates()) {
    options.ema(0.9);
  }
  TrainerOptions kept = options;
  for (const char* name : {"w0", "w1", "w2", "w3"}) {
    kept.precision(kept.precision().keep_fp32(name));
  }
  Trainer a(runtime(), whole, optimizer, options);
  Trainer b(runtime(), split, optimizer, kept);
  for (int64_t step = 0; step < 3 * options.accumulate(); ++step) {
    const auto closure = [&](Fourier& model) -> Loss {
      const at::Tensor loss = model.loss(static_cast<uint64_t>(step));
      return options.losses() > 1 ? Loss::several({loss, loss * 0.5}) : Loss(loss);
    };
    const StepReport one = a.step([&] { return closure(*whole); });
    const StepReport two = b.step([&] { return closure(*split); });
    EXPECT_EQ(one.loss(), two.loss());
    if (one.closes_update()) {
      EXPECT_EQ(one.grad_norm(), two.grad_norm());
    }
  }
  if (options.local_updates()) {
    a.finish_round();
    b.finish_round();
  }
  EXPECT_EQ(a.updates(), 3);
  EXPECT_TRUE(a.replicas_agree());
  EXPECT_TRUE(same(a.masters(), b.masters()));
  for (const at::Tensor& weight : whole->spectral) {
    EXPECT_EQ(weight.scalar_type(), at::kComplexFloat);
  }
  for (size_t i = 0; i < whole->parameters().size(); ++i) {
    EXPECT_TRUE(same(whole->parameters()[i], split->parameters()[i])) << i;
  }
  EXPECT_TRUE(whole->tied.is_same(whole->spectral[0]));
  if (options.ema() > 0.0) {
    EXPECT_TRUE(same(a.averaged(), b.averaged()));
  }
  EXPECT_EQ(a.memory().moments, b.memory().moments);
  EXPECT_EQ(a.memory().masters, b.memory().masters);
  EXPECT_EQ(a.memory().gradients, b.memory().gradients);
  EXPECT_EQ(a.gradient_table(), b.gradient_table());
}

TEST(ComplexParameters, HaveTheBitsOfTheirRealViewAtEveryLevel) {
  using P = Precision;
  const auto bf16 = at::kBFloat16;
  const auto fp16 = at::kHalf;
  const auto scale = amp::LossScalerOptions().init_scale(256);
  for (const Precision& precision :
       {P::O0(), P::O0().wire(fp16).loss_scale(scale), P::O1(bf16), P::O1(fp16).loss_scale(scale),
        P::O2(bf16), P::O2(fp16).loss_scale(scale), P::O2(bf16).remainders(),
        P::O2(bf16).wire(at::kFloat), P::O2(bf16).keep_fp32("w0"), P::O3(bf16),
        P::O3(bf16).stochastic_rounding(), P::O3(fp16)}) {
    for (const bool shard : {false, true}) {
      expect_twins(AdamW(1e-2), TrainerOptions().precision(precision).shard_optimizer(shard),
                   c10::str(precision.describe(), shard ? ", sharded" : ""));
    }
  }
}

TEST(ComplexParameters, HaveTheBitsOfTheirRealViewUnderEveryOption) {
  const auto two_rounds = LocalUpdates(2).outer_momentum(0.9);
  const std::vector<std::pair<const char*, TrainerOptions>> cases = {
      {"accumulate", TrainerOptions().accumulate(2)},
      {"sharded and accumulated", TrainerOptions().accumulate(2).shard_optimizer(true)},
      {"clipped", TrainerOptions().clip_grad_norm(0.1).clip_grad_value(0.01)},
      {"several losses", TrainerOptions().losses(2)},
      {"reproducible", TrainerOptions().reproducible(true)},
      {"compared", TrainerOptions().compare_replicas_every(1)},
      {"small buckets",
       TrainerOptions().buckets(BucketOptions().first_bucket_bytes(64).bucket_bytes(64))},
      {"local updates", TrainerOptions().local_updates(two_rounds)}};
  for (const auto& [name, options] : cases) {
    expect_twins(AdamW(1e-2), options, name);
  }
}

TEST(ComplexParameters, HaveTheBitsOfTheirRealViewWithEveryOptimizer) {
  const auto is_spectral = [](const ModelTensor& entry) { return entry.name[0] == 'w'; };
  const std::vector<std::shared_ptr<OptimizerSpec>> optimizers = {
      AdamW(1e-2).moments(MomentFormat::bf16).clone(),
      AdamW(1e-2).group(is_spectral, AdamW(1e-3).weight_decay(0.0)).clone(),
      SGD(1e-2).momentum(0.9).nesterov(true).weight_decay(0.1).clone(),
      Lion(1e-2).clone(),
      LAMB(1e-2).weight_decay(0.1).clone(),
      of_torch<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2))};
  for (const auto& optimizer : optimizers) {
    for (const bool shard : {false, true}) {
      expect_twins(*optimizer, TrainerOptions().shard_optimizer(shard),
                   c10::str(optimizer->describe(), shard ? ", sharded" : ""));
    }
  }
}

// ---- Memory, snapshots, changes ----

TEST(ComplexParameters, AreFollowedByTheirViews) {
  const auto model = std::make_shared<Pairs>(Tensors{pairs({3, 4}, 1)});
  const at::Tensor row = model->all[0].detach()[1];
  const at::Tensor reals = at::view_as_real(model->all[0].detach());
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(Precision::O2(at::kHalf)));
  trainer.step([&] { return model->loss({pairs({3, 4}, 2)}); });
  EXPECT_TRUE(same(row, model->all[0][1]));
  EXPECT_TRUE(at::equal(reals, at::view_as_real(model->all[0].detach())));
}

TEST(ComplexParameters, TakeGradientsThatAreLazilyConjugated) {
  for (const bool negative : {false, true}) {
    for (const bool wraps : {false, true}) {
      const at::Tensor start = pairs({1}, 1);
      const auto model = std::make_shared<Pairs>(Tensors{start});
      const at::Tensor given = pairs({1}, 2);
      model->all[0].register_hook([=](const at::Tensor&) {
        return negative ? at::conj(given)._neg_view() : at::conj(given);
      });
      const at::Tensor moved =
          start - 0.1 * (negative ? -1.0 : 1.0) * at::conj(given).resolve_conj();
      if (wraps) {
        DataParallel parallel(runtime().communicator(), model);
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        model->loss({given}).backward();
        parallel.finish();
        optimizer.step();
      } else {
        Trainer trainer(runtime(), model, SGD(0.1));
        trainer.step([&] { return model->loss({given}); });
      }
      EXPECT_LT(distance(model->all[0].detach(), moved), 1e-6) << negative << wraps;
    }
  }
}

TEST(ComplexParameters, AreAveragedByDataParallel) {
  const std::vector<std::pair<at::ScalarType, double>> wires = {
      {at::kFloat, 1e-6}, {at::kHalf, 2e-3}, {at::kBFloat16, 2e-2}};
  for (const auto& [wire, limit] : wires) {
    const auto model = std::make_shared<Pairs>(
        Tensors{pairs({3}, 1), pairs({4, 2}, 2).t(), pairs({2}, 3, at::kComplexDouble)});
    DataParallelOptions options;
    if (wire != at::kFloat) {
      options.wire(wire);
    }
    DataParallel parallel(runtime().communicator(), model, options);
    const auto gradients = [](int rank) {
      const auto seed = 10 + static_cast<uint64_t>(rank);
      return Tensors{pairs({3}, seed), pairs({2, 4}, seed), pairs({2}, seed, at::kComplexDouble)};
    };
    for (int pass = 0; pass < 2; ++pass) {
      for (const at::Tensor& parameter : model->all) {
        parameter.mutable_grad().reset();
      }
      model->loss(gradients(runtime().rank())).backward();
      parallel.finish();
      for (size_t i = 0; i < 3; ++i) {
        at::Tensor mean = gradients(0)[i];
        for (int rank = 1; rank < runtime().size(); ++rank) {
          mean = mean + gradients(rank)[i];
        }
        EXPECT_EQ(model->all[i].grad().scalar_type(), model->all[i].scalar_type());
        EXPECT_LT(distance(model->all[i].grad(), mean / runtime().size()), limit) << i;
      }
    }
  }
}

/// A mixture of dtypes at O0.
Tensors mixture(uint64_t seed) {
  return {pairs({3, 5}, seed), pairs({4, 3}, seed + 1, at::kComplexDouble).t(), pairs({}, seed + 2),
          pairs({70}, seed + 3, at::kComplexDouble)};
}

void train(Trainer& trainer, const Pairs& model, uint64_t first, uint64_t count) {
  for (uint64_t step = first; step < first + count; ++step) {
    trainer.step([&] {
      return model.loss(mixture(1000 + 100 * step + static_cast<uint64_t>(runtime().rank())));
    });
  }
}

TEST(ComplexParameters, AreResumedWithTheSameBits) {
  for (const bool saves_shards : {false, true}) {
    for (const bool resumes_shards : {false, true}) {
      for (const bool is_torch : {false, true}) {
        const SharedFolder folder;
        const auto optimizer = is_torch
                                   ? of_torch<torch::optim::Adam>(torch::optim::AdamOptions(1e-2))
                                   : AdamW(1e-2).clone();
        const auto options =
            TrainerOptions().ema(0.9).snapshots(SnapshotOptions().folder(folder.file("run")));
        const auto model = std::make_shared<Pairs>(mixture(1));
        Trainer trainer(runtime(), model, *optimizer,
                        TrainerOptions(options).shard_optimizer(saves_shards));
        train(trainer, *model, 0, 3);
        trainer.save();
        trainer.finish_saving();
        train(trainer, *model, 3, 3);
        const auto again = std::make_shared<Pairs>(mixture(9));
        Trainer other(runtime(), again, *optimizer,
                      TrainerOptions(options).shard_optimizer(resumes_shards));
        other.resume(folder.file("run"));
        const auto loaded = std::make_shared<Pairs>(mixture(5));
        load_weights(loaded, folder.file("run"));
        for (size_t i = 0; i < loaded->all.size(); ++i) {
          EXPECT_TRUE(same(loaded->all[i], again->all[i])) << i;
        }
        train(other, *again, 3, 3);
        EXPECT_TRUE(same(other.masters(), trainer.masters())) << saves_shards << resumes_shards;
        EXPECT_TRUE(same(other.averaged(), trainer.averaged()));
        const snapshot::SafetensorsFile file(testing::step_path(folder.file("run"), 3) +
                                             "/model.safetensors");
        EXPECT_EQ(file.tensor("p0").scalar_type(), at::kComplexFloat);
        EXPECT_EQ(file.tensor("p0").sizes(), at::IntArrayRef({3, 5}));
        EXPECT_EQ(file.tensor("p1").scalar_type(), at::kDouble);
        EXPECT_EQ(file.tensor("p1").sizes(), at::IntArrayRef({3, 4, 2}));
      }
    }
  }
}

TEST(ComplexParameters, AreResumedInTheMiddleOfARound) {
  const SharedFolder folder;
  const auto options = TrainerOptions()
                           .local_updates(LocalUpdates(4).outer_momentum(0.9))
                           .snapshots(SnapshotOptions().folder(folder.file("run")));
  const auto model = std::make_shared<Pairs>(mixture(1));
  Trainer trainer(runtime(), model, AdamW(1e-2), options);
  train(trainer, *model, 0, 6);
  trainer.save();
  trainer.finish_saving();
  train(trainer, *model, 6, 4);
  trainer.finish_round();
  const auto again = std::make_shared<Pairs>(mixture(9));
  Trainer other(runtime(), again, AdamW(1e-2), options);
  other.resume(folder.file("run"));
  train(other, *again, 6, 4);
  other.finish_round();
  EXPECT_TRUE(same(other.masters(), trainer.masters()));
}

TEST(ComplexParameters, AreLoadedFromSafetensorsOfComplex64) {
  const SharedFolder folder;
  const at::Tensor value = pairs({3, 4}, 7);
  if (runtime().is_main()) {
    snapshot::save_safetensors(folder.file("w.safetensors"), {{"p0", value}, {"p1", value}});
  }
  testing::meet();
  const auto model = std::make_shared<Pairs>(Tensors{pairs({3, 4}, 1), pairs({3, 4}, 2)});
  model->all[1].set_requires_grad(false);
  Trainer trainer(runtime(), model, AdamW(1e-2),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16)).ema(0.9));
  EXPECT_TRUE(trainer.load_weights(folder.file("w.safetensors")).is_complete());
  EXPECT_TRUE(same(model->all[0], value));
  EXPECT_TRUE(same(model->all[1], value));
  EXPECT_TRUE(same(trainer.masters()[0].second, value));
  EXPECT_TRUE(same(trainer.averaged()[0].second, value));
}

TEST(ComplexParameters, AreAdoptedFrozenAndThawed) {
  for (const bool shard : {false, true}) {
    const auto model = std::make_shared<Pairs>(mixture(1));
    Trainer trainer(runtime(), model, SGD(0.1).momentum(0.9),
                    TrainerOptions().shard_optimizer(shard).unused(UnusedParameters::zeros));
    train(trainer, *model, 0, 1);
    {
      const at::NoGradGuard no_grad;
      model->all[0].mul_(c10::complex<float>(0.0F, 2.0F));
      model->all[1].set_data(at::conj(model->all[1].detach()));
    }
    const at::Tensor doubled = model->all[0].detach().clone();
    const at::Tensor turned = model->all[1].detach().resolve_conj().clone();
    trainer.adopt_weights();
    EXPECT_TRUE(same(trainer.masters()[0].second, doubled));
    EXPECT_TRUE(same(trainer.masters()[1].second, turned));
    model->all[0].set_requires_grad(false);
    trainer.adopt_trainable();
    train(trainer, *model, 1, 2);
    EXPECT_TRUE(same(model->all[0], doubled));
    model->all[0].set_requires_grad(true);
    trainer.adopt_trainable();
    EXPECT_TRUE(same(model->all[0], doubled));
    train(trainer, *model, 3, 1);
    EXPECT_GT(distance(model->all[0].detach(), doubled), 1e-4);
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

TEST(ComplexParameters, ThatAreClampedAtO2KeepBothParts) {
  const auto model = std::make_shared<Pairs>(Tensors{pairs({6}, 1)});
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16)));
  {
    const at::NoGradGuard no_grad;
    at::view_as_real(model->all[0]).clamp_(-0.3, 0.3);
  }
  const at::Tensor clamped = model->all[0].detach().clone();
  trainer.adopt_weights();
  EXPECT_TRUE(same(trainer.masters()[0].second, clamped));
}

TEST(ComplexParameters, ThatDifferInALowImaginaryBitAreFound) {
  const auto model = std::make_shared<Pairs>(Tensors{pairs({5}, 1)});
  Trainer trainer(runtime(), model, AdamW(1e-2));
  trainer.step([&] { return model->loss({pairs({5}, 2)}); });
  const at::NoGradGuard no_grad;
  if (runtime().is_main()) {
    at::view_as_real(model->all[0])[3][1] += 1e-3;
  }
  EXPECT_EQ(trainer.replicas_agree(), runtime().size() == 1);
  model->all[0].zero_();  // so that the end of the Trainer compares equal weights
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(ComplexParameters, WithoutFiniteGradientsAreSkippedAndNamed) {
  const auto model = std::make_shared<Pairs>(Tensors{pairs({3}, 1)});
  const at::Tensor before = model->all[0].detach().clone();
  Trainer trainer(runtime(), model, AdamW(1e-2));
  trainer.diagnose_next_overflow();
  for (int step = 0; step < 2; ++step) {
    const StepReport report = trainer.step([&] {
      const at::Tensor loss = model->loss({pairs({3}, 2)});
      return loss * std::numeric_limits<double>::infinity();
    });
    EXPECT_TRUE(report.skipped());
  }
  EXPECT_TRUE(same(model->all[0], before));
  EXPECT_FALSE(trainer.diagnosis().empty());
}

// ---- What is refused ----

TEST(ComplexParameters, OfComplex32AreRefusedByName) {
  const auto model = std::make_shared<OneWeight>(at::ones({3}, at::kComplexHalf));
  const auto names_it =
      AllOf(HasSubstr("parameter weight has dtype ComplexHalf"), HasSubstr("kComplexFloat"));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1)); }), names_it);
  EXPECT_THAT(error_of([&] { DataParallel(runtime().communicator(), model); }), names_it);
}

TEST(ComplexParameters, OfComplex128FollowTheRulesOfFp64) {
  const auto model = std::make_shared<OneWeight>(at::ones({3}, at::kComplexDouble));
  const auto refusal = [&](const OptimizerSpec& optimizer, const TrainerOptions& options) {
    return error_of([&] { Trainer(runtime(), model, optimizer, options); });
  };
  const auto names_it = AllOf(HasSubstr("parameter weight is complex128"), HasSubstr("complex64"));
  using P = Precision;
  for (const Precision& precision : {P::O1(at::kBFloat16), P::O2(at::kBFloat16),
                                     P::O3(at::kBFloat16), P::O0().wire(at::kHalf)}) {
    EXPECT_THAT(refusal(SGD(0.1), TrainerOptions().precision(precision)), names_it);
  }
  EXPECT_THAT(refusal(AdamW(0.1).moments(MomentFormat::bf16), {}), names_it);
  EXPECT_THAT(refusal(SGD(0.1), TrainerOptions().reproducible(true)), names_it);
  Trainer trainer(runtime(), model, SGD(0.1));
  if (runtime().is_main()) {
    EXPECT_THAT(trainer.summary(), HasSubstr("3 elements are fp64"));
  }
}

TEST(ComplexParameters, AreRefusedByMuonUnlessTheyAreOfTheRest) {
  EXPECT_THAT(error_of([] {
                MuonOptimizer({pairs({3, 3}, 1)}, MuonOptions(), {}, torch::optim::AdamWOptions());
              }),
              HasSubstr("is complex; pass it with the rest"));
  for (const at::Tensor& weight : {pairs({3, 3}, 1), pairs({3}, 1), pairs({2, 2, 2}, 1)}) {
    const auto model = std::make_shared<testing::Mlp>();
    model->register_parameter("phase", weight);
    const torch::optim::AdamWOptions adamw(1e-2);
    EXPECT_THAT(error_of([&] { MuonOptimizer::of(model, MuonOptions(), adamw); }),
                AllOf(HasSubstr("parameter phase is ComplexFloat"), HasSubstr("rest_names")));
    const TorchOptimizer own([=](const Tensors& masters) {
      Tensors matrices, rest;
      for (const at::Tensor& master : masters) {
        (master.dim() == 2 ? matrices : rest).push_back(master);
      }
      return std::make_unique<MuonOptimizer>(matrices, MuonOptions(), rest, adamw);
    });
    if (weight.dim() == 1) {
      EXPECT_THAT(error_of([&] { Trainer(runtime(), model, own); }),
                  HasSubstr("parameter phase is ComplexFloat"));
    }
    const auto with_rest = MuonOptimizer::of(model, MuonOptions(), adamw, {"phase"});
    Trainer trainer(runtime(), model, with_rest, TrainerOptions().unused(UnusedParameters::zeros));
    trainer.step([&] {
      return model->loss(drawn({5, 4}, 1), drawn({5, 2}, 2)) +
             model->named_parameters()["phase"].abs().sum();
    });
    EXPECT_EQ(model->named_parameters()["phase"].scalar_type(), at::kComplexFloat);
  }
}

TEST(ComplexParameters, AreUnscaledByALossScaler) {
  amp::LossScaler scaler(amp::LossScalerOptions().init_scale(64));
  const at::Tensor weight = pairs({3}, 1).requires_grad_();
  const at::Tensor before = weight.detach().clone();
  torch::optim::SGD optimizer({weight}, 0.1);
  const at::Tensor slope = pairs({3}, 2);
  const at::Tensor loss = (at::view_as_real(weight) * at::view_as_real(slope)).sum();
  scaler.scale(loss).backward();
  scaler.step(optimizer);
  EXPECT_LT(distance(weight.detach(), before - 0.1 * slope), 1e-6);
}

}  // namespace
}  // namespace lockstep
