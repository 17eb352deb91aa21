// Each lazy sign and each layout, at each place where a tensor of the program enters.
#include "odd_tensors.h"
#include "error_of.h"

#include <ATen/ATen.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/impl/value_summary.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/non_finite_tracer.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/batch.h>
#include <lockstep/runtime/data/impl/rank_comparison.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/load_weights.h>
#include <lockstep/runtime/loader_options.h>
#include <lockstep/runtime/metrics.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/sgd.h>

#include "runtime/snapshot_runs.h"
#include "runtime/temporary_folder.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// A place where a tensor enters: what it makes of the tensor's values.
struct Door {
  std::string name;  // in a refusal
  std::function<at::Tensor(const at::Tensor&)> pass;
  bool takes_complex = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes = {4, 4};
};

at::Tensor saved_and_read(const at::Tensor& tensor) {
  const testing::TemporaryFolder folder;
  snapshot::save_safetensors(folder.file("x"), {{"tensor", tensor}});
  return snapshot::SafetensorsFile(folder.file("x")).tensor("tensor").clone();
}

at::Tensor mean_of(Metric& metric, const Prediction& prediction) {
  std::fill(metric.counts().begin(), metric.counts().end(), 0);
  metric.add(prediction);
  return at::scalar_tensor(metric.value(), at::kDouble);
}

/// The numbers of `tensor`'s gradient.
at::Tensor gradient_of(const at::Tensor& tensor,
                       const std::function<at::Tensor(const at::Tensor&)>& layer) {
  const at::Tensor leaf = tensor.detach().requires_grad_();
  layer(leaf).square().sum().backward();
  return leaf.grad().clone();
}

at::Tensor summarised(const at::Tensor& tensor) {
  const amp::ValueSummary summary = amp::summarise(tensor);
  return at::tensor(
      {summary.absmax, static_cast<double>(summary.zeros), static_cast<double>(summary.numel)});
}

std::vector<Door> local_doors() {
  const at::Tensor weight = drawn({4}, 5);
  const at::Tensor targets = at::arange(4);
  return {
      {"tensor \"tensor\"", saved_and_read, /*takes_complex=*/true},
      {"of the batch",
       [](const at::Tensor& x) {
         return stack_samples({x, x}).to_dense();
       },
       /*takes_complex=*/true},
      {"LoaderOptions: the tensor weights",
       [](const at::Tensor& x) { return at::tensor(LoaderOptions().weights(x).weights_of(4)); },
       false,
       at::kFloat,
       {4}},
      {"the metric accuracy",
       [=](const at::Tensor& x) {
         Accuracy accuracy;
         return mean_of(accuracy, {x, targets});
       }},
      {"the metric accuracy",
       [=](const at::Tensor& x) {
         Accuracy accuracy;
         const at::Tensor scores = at::eye(4);
         return mean_of(accuracy, {scores, x});
       },
       false,
       at::kLong,
       {4}},
      {"the metric loss",
       [=](const at::Tensor& x) {
         MeanLoss loss;
         return mean_of(loss, {x, targets});
       }},
      {"the metric mean",
       [](const at::Tensor& x) {
         MeanOf mean("mean");
         return mean_of(mean, {x, {}});
       }},
      {"the metric mean",
       [](const at::Tensor& x) {
         MeanOf mean("mean");
         return mean_of(mean, {x, {}});
       },
       false, at::kDouble},
      {"summarise: the tensor", summarised},
      {"fused_layer_norm",
       [=](const at::Tensor& x) { return fused_layer_norm(x, weight, weight); }},
      {"fused_layer_norm",
       [=](const at::Tensor& x) {
         return fused_layer_norm(drawn({2, 4}, 1), x, weight);
       },
       false,
       at::kFloat,
       {4}},
      {"fused_rms_norm", [=](const at::Tensor& x) { return fused_rms_norm(x, weight); }},
      {"fused_bias_gelu", [=](const at::Tensor& x) { return fused_bias_gelu(x, weight); }},
      {"fused_bias_gelu",
       [=](const at::Tensor& x) {
         return fused_bias_gelu(drawn({2, 4}, 1), x);
       },
       false,
       at::kFloat,
       {4}},
      {"fused_cross_entropy", [=](const at::Tensor& x) { return fused_cross_entropy(x, targets); }},
      {"fused_linear_cross_entropy",
       [=](const at::Tensor& x) {
         return fused_linear_cross_entropy(x, drawn({4, 4}, 2), weight, targets);
       }},
  };
}

at::Tensor values_of(const Door& door, const LazyForm& form) {
  const at::Tensor real = (drawn(door.sizes, 7).abs() + 0.3).to(door.dtype);
  return form.is_complex ? at::complex(real, real.t()) : real;
}

TEST(Doors, LazySignsAreAppliedToWhatEnters) {
  for (const Door& door : local_doors()) {
    for (const LazyForm& form : testing::lazy_forms()) {
      if (form.is_complex && !door.takes_complex) {
        continue;
      }
      SCOPED_TRACE(c10::str(door.name, ", ", form.name));
      const at::Tensor values = values_of(door, form);
      const at::Tensor lazy = form.of(values);
      ASSERT_TRUE(lazy.is_neg() || lazy.is_conj());
      EXPECT_TRUE(at::equal(door.pass(lazy), door.pass(values)));
    }
  }
}

/// A refusal names the door and the form; anything else than a refusal is the right value.
void expect_served_or_refused(const std::string& name, const std::string& word,
                              const std::function<void()>& serve) {
  try {
    serve();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr(word)));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "LibTorch's own words: " << std::string(error.what()).substr(0, 300);
  }
}

TEST(Doors, OtherMemoryThanValuesIsServedOrRefusedByName) {
  for (const Door& door : local_doors()) {
    if (door.dtype != at::kFloat) {
      continue;
    }
    for (const OddTensor& odd : testing::odd_tensors(at::ones(door.sizes))) {
      SCOPED_TRACE(c10::str(door.name, ", ", odd.word));
      expect_served_or_refused(door.name, odd.word, [&] {
        EXPECT_TRUE(at::equal(door.pass(odd.tensor), door.pass(at::ones(door.sizes))));
      });
    }
  }
}

TEST(Doors, LazyZerosAreZeros) {
  for (const Door& door : local_doors()) {
    const at::Tensor lazy = at::_efficientzerotensor(door.sizes, at::TensorOptions(at::kFloat));
    if (door.dtype == at::kFloat && door.name.rfind("LoaderOptions", 0) != 0) {
      SCOPED_TRACE(door.name);
      EXPECT_TRUE(at::equal(door.pass(lazy), door.pass(at::zeros(door.sizes))));
    }
  }
}

TEST(Doors, ATracerPassesOverTensorsWithoutValues) {
  const auto model = std::make_shared<OneWeight>(drawn({4, 4}, 3));
  amp::NonFiniteTracer tracer{Model(model)};
  for (const OddTensor& odd : testing::odd_tensors()) {
    SCOPED_TRACE(odd.word);
    const at::Tensor same = odd.tensor.detach();
    EXPECT_FALSE(tracer.first().has_value());
  }
  const at::Tensor nested = testing::odd_tensors()[3].tensor * 2.0;
  const at::Tensor meta = at::empty({4}, at::TensorOptions().device(at::kMeta)) * 2.0;
  const at::Tensor zeros = at::_efficientzerotensor({4}, at::TensorOptions(at::kFloat)) * 2.0;
  EXPECT_FALSE(tracer.first().has_value());
  const at::Tensor faulty = (model->weight * 0.0).log();
  EXPECT_TRUE(tracer.first().has_value());
}

TEST(Doors, RanksCompareTheNumbersOfLazySamples) {
  const LazyForm minus = testing::lazy_forms().front();
  const at::Tensor values = drawn({4, 4}, 7);
  detail::SampleNumbers plain, lazy, odd;
  plain.add(values);
  lazy.add(minus.of(values));
  EXPECT_EQ(plain.take(), lazy.take());
  for (const OddTensor& tensor : testing::odd_tensors()) {
    odd.add(tensor.tensor);  // has no numbers
  }
}

// ------------------------------------------------------------------------------- gradients

/// Passes `forward` on and hands `form` of the gradient back.
struct HandsBack : torch::autograd::Function<HandsBack> {
  inline static std::function<at::Tensor(const at::Tensor&)> form;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {form(gradients[0])};
  }
};

struct GradientForm {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> of;
};

/// Those that autograd lets pass: it refuses other layouts itself.
std::vector<GradientForm> gradient_forms() {
  return {
      {"minus", [](const at::Tensor& g) { return g.neg()._neg_view(); }},
      {"Sparse", [](const at::Tensor& g) { return g.to_sparse(); }},
      {"zeros",
       [](const at::Tensor& g) { return at::_efficientzerotensor(g.sizes(), g.options()); }},
      {"transposed", [](const at::Tensor& g) { return g.t().contiguous().t(); }},
      {"expanded", [](const at::Tensor& g) { return g.mean().expand(g.sizes()); }},
  };
}

at::Tensor loss_of(const at::Tensor& weight) {
  return (HandsBack::apply(weight) - 2.0).square().mean();
}

/// The weight after three updates of plain LibTorch with this gradient in dense memory.
at::Tensor plain_updates(const at::Tensor& start, const GradientForm& form) {
  HandsBack::form = [&](const at::Tensor& g) { return form.of(g).to_dense().clone(); };
  const at::Tensor weight = start.clone().requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.1);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    loss_of(weight).backward();
    optimizer.step();
  }
  HandsBack::form = form.of;
  return weight.detach();
}

TEST(Doors, GradientsOfEachFormTrainTheModelOfATrainer) {
  const std::vector<TrainerOptions> settings = {TrainerOptions(), TrainerOptions().accumulate(2),
                                                TrainerOptions().shard_optimizer(true),
                                                TrainerOptions().reproducible(true)};
  for (const TrainerOptions& options : settings) {
    for (const GradientForm& form : gradient_forms()) {
      SCOPED_TRACE(c10::str(form.name, ", accumulate ", options.accumulate()));
      const at::Tensor start = drawn({4, 4}, 3);
      const at::Tensor expected = plain_updates(start, form);
      const auto model = std::make_shared<OneWeight>(start.clone());
      Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions(options).densify_sparse(true));
      for (int64_t step = 0; step < 3 * options.accumulate(); ++step) {
        trainer.step([&] { return loss_of(model->weight); });
      }
      EXPECT_TRUE(at::allclose(model->weight, expected, 1e-5, 1e-6));
    }
  }
}

TEST(Doors, GradientsOfEachFormAreAveragedByDataParallel) {
  for (const GradientForm& form : gradient_forms()) {
    SCOPED_TRACE(form.name);
    const at::Tensor start = drawn({4, 4}, 3);
    const at::Tensor expected = plain_updates(start, form);
    const auto model = std::make_shared<OneWeight>(start.clone());
    DataParallel parallel(runtime().communicator(), model,
                          DataParallelOptions().densify_sparse(true));
    torch::optim::SGD optimizer({model->weight}, 0.1);
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      loss_of(model->weight).backward();
      parallel.finish();
      optimizer.step();
    }
    EXPECT_TRUE(at::allclose(model->weight.detach(), expected, 1e-5, 1e-6));
  }
}

TEST(Doors, GradientsOfEachFormAreUnscaledByLossScaler) {
  for (const GradientForm& form : gradient_forms()) {
    SCOPED_TRACE(form.name);
    const at::Tensor start = drawn({4, 4}, 3);
    const at::Tensor expected = plain_updates(start, form);
    const at::Tensor weight = start.clone().requires_grad_();
    torch::optim::SGD optimizer({weight}, 0.1);
    amp::LossScaler scaler(amp::LossScalerOptions().init_scale(64));
    expect_served_or_refused("LossScaler", form.name, [&] {
      for (int i = 0; i < 3; ++i) {
        optimizer.zero_grad();
        scaler.scale(loss_of(weight)).backward();
        scaler.step(optimizer);
        scaler.update();
      }
      EXPECT_TRUE(at::allclose(weight.detach(), expected, 1e-5, 1e-6));
    });
  }
}

TEST(Doors, FusedLayersReadGradientsWithALazyMinus) {
  const at::Tensor weight = drawn({4}, 5);
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> layers = {
      [&](const at::Tensor& x) { return fused_layer_norm(x, weight, weight); },
      [&](const at::Tensor& x) { return fused_rms_norm(x, weight); },
      [&](const at::Tensor& x) { return fused_bias_gelu(x, weight); },
      [&](const at::Tensor& x) { return fused_cross_entropy(x, at::arange(4)); }};
  for (size_t i = 0; i < layers.size(); ++i) {
    SCOPED_TRACE(i);
    const auto layer = [&](const at::Tensor& x) { return HandsBack::apply(layers[i](x)); };
    HandsBack::form = [](const at::Tensor& g) { return g; };
    const at::Tensor expected = gradient_of(drawn({4, 4}, 7), layer);
    HandsBack::form = gradient_forms().front().of;
    EXPECT_TRUE(at::equal(gradient_of(drawn({4, 4}, 7), layer), expected));
  }
}

// ------------------------------------------------------------------------- saved activations

/// Saves x and its negative view, which have one memory.
at::Tensor saves_both(const at::Tensor& x) {
  const at::Tensor wide = x * 1.5;
  const at::Tensor minus = wide._neg_view();
  return (wide * x.sin()).sum() + (minus * x.cos()).sum() + at::mul(minus, minus).sum();
}

TEST(Doors, SavedTensorsKeepTheirSigns) {
  const at::Tensor start = drawn({64, 64}, 4);
  const auto gradient = [&](const std::function<at::Tensor(const at::Tensor&)>& run) {
    const at::Tensor x = start.clone().requires_grad_();
    run(x).backward();
    return x.grad().clone();
  };
  const at::Tensor expected = gradient(saves_both);
  EXPECT_TRUE(at::equal(gradient([](const at::Tensor& x) {
                          const OffloadActivations region(std::vector<at::Tensor>{},
                                                          OffloadOptions().min_bytes(1));
                          return saves_both(x);
                        }),
                        expected));
  EXPECT_TRUE(
      at::equal(gradient([](const at::Tensor& x) { return checkpoint(saves_both, x); }), expected));
}

// ------------------------------------------------------------------------------------ losses

TEST(Doors, LossesWithALazyMinusTrainAsTheirValues) {
  const LazyForm minus = testing::lazy_forms().front();
  const auto trained = [&](const std::function<Loss(const at::Tensor&)>& loss,
                           const TrainerOptions& options) {
    const auto model = std::make_shared<OneWeight>(drawn({4}, 3));
    Trainer trainer(runtime(), model, SGD(0.1), options);
    double reported = 0;
    for (int i = 0; i < 3; ++i) {
      reported = trainer.step([&] { return loss((model->weight - 2.0).square().mean()); }).loss();
    }
    return at::cat({model->weight.detach().to(at::kDouble),
                    at::scalar_tensor(reported, at::kDouble).reshape({1})});
  };
  const auto expect_same = [&](const std::function<Loss(const at::Tensor&)>& lazy,
                               const std::function<Loss(const at::Tensor&)>& plain,
                               const TrainerOptions& options) {
    EXPECT_TRUE(at::allclose(trained(lazy, options), trained(plain, options), 1e-6, 1e-7));
  };
  expect_same([&](const at::Tensor& l) { return Loss(minus.of(l)); },
              [](const at::Tensor& l) { return Loss(l); }, {});
  expect_same([&](const at::Tensor& l) { return Loss(minus.of(l.to(at::kDouble))); },
              [](const at::Tensor& l) { return Loss(l); }, {});
  expect_same([&](const at::Tensor& l) { return Loss::sum(minus.of(l), 3.0); },
              [](const at::Tensor& l) { return Loss::sum(l, 3.0); }, {});
  expect_same(
      [&](const at::Tensor& l) {
        return Loss::several({minus.of(l), minus.of(l * 2)});
      },
      [](const at::Tensor& l) {
        return Loss::several({l, l * 2});
      },
      TrainerOptions().losses(2));
}

TEST(Doors, LossesOfOtherMemoryThanValuesAreRefusedByName) {
  const auto model = std::make_shared<OneWeight>(drawn({4}, 3));
  Trainer trainer(runtime(), model, SGD(0.1));
  for (const OddTensor& odd : testing::odd_tensors()) {
    SCOPED_TRACE(odd.word);
    EXPECT_THAT(testing::error_of([&] { trainer.step([&] { return odd.tensor; }); }),
                AllOf(HasSubstr("the loss"), HasSubstr(odd.word)));
    trainer.abandon();
  }
  EXPECT_THAT(testing::error_of([&] {
                trainer.step([&] {
                  const c10::InferenceMode guard;
                  return model->weight.sum();
                });
              }),
              HasSubstr("InferenceMode"));
  trainer.abandon();
  EXPECT_THAT(testing::error_of([&] {
                trainer.step([&] { return at::complex(model->weight, model->weight).sum(); });
              }),
              HasSubstr("the loss must be floating point"));
  trainer.abandon();
  trainer.step([&] { return model->weight.sum(); });
}

// ----------------------------------------------------------------------------------- buffers

/// Its forward gives its buffers other data, in each lazy form.
struct Turns : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", drawn({4}, 3));
  at::Tensor phase = register_buffer("phase", at::zeros({4}, at::kComplexFloat));
  at::Tensor sign = register_buffer("sign", at::zeros({4}));
  static at::Tensor phase_of(int rank) {
    return at::polar(at::ones({4}), at::arange(4) * 0.5 + rank);
  }
  static at::Tensor sign_of(int rank) { return at::arange(4, at::kFloat) + 10.0 * rank; }
  at::Tensor loss() {
    const auto forms = testing::lazy_forms();
    phase.set_data(forms[1].of(phase_of(runtime().rank())));
    sign.set_data(forms[0].of(sign_of(runtime().rank())));
    return weight.square().mean();
  }
};

TEST(Doors, BuffersThatForwardReplacesByALazyFormAreThoseOfRankZero) {
  for (const TrainerOptions& options : {TrainerOptions(), TrainerOptions().ema(0.5)}) {
    const auto model = std::make_shared<Turns>();
    Trainer trainer(runtime(), model, SGD(0.1), options);
    for (int step = 0; step < 2; ++step) {
      trainer.step([&] { return model->loss(); });
      EXPECT_TRUE(at::equal(model->phase, Turns::phase_of(0)));
      EXPECT_TRUE(at::equal(model->sign, Turns::sign_of(0)));
    }
    EXPECT_TRUE(trainer.replicas_agree());
  }
  const auto model = std::make_shared<Turns>();
  DataParallel parallel(runtime().communicator(), model);
  model->loss().backward();
  parallel.finish();
  EXPECT_TRUE(at::equal(model->phase, Turns::phase_of(0)));
  EXPECT_TRUE(at::equal(model->sign, Turns::sign_of(0)));
}

// ------------------------------------------------------------------- inputs, state, evaluation

TEST(Doors, ATrainerMadeUnderInferenceModeIsRefused) {
  for (const Precision& precision : {Precision::O0(), Precision::O2(at::kBFloat16)}) {
    const auto model = std::make_shared<OneWeight>(drawn({4}, 3));
    EXPECT_THAT(testing::error_of([&] {
                  const c10::InferenceMode guard;
                  Trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(precision));
                }),
                HasSubstr("made under InferenceMode"));
    Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(precision));
    trainer.step([&] { return model->weight.to(at::kFloat).sum(); });
  }
}

TEST(Doors, InputsOfAStepArriveAsTheirValues) {
  for (const LazyForm& form : testing::lazy_forms()) {
    const at::Tensor real = drawn({4}, 7);
    const at::Tensor values = form.is_complex ? at::complex(real, real + 1) : real;
    const auto model = std::make_shared<OneWeight>(drawn({4}, 3));
    Trainer trainer(runtime(), model, SGD(0.1));
    trainer.step({form.of(values)}, [&](const std::vector<at::Tensor>& inputs) {
      EXPECT_TRUE(at::equal(inputs[0], values));
      return model->weight.sum();
    });
    EXPECT_TRUE(at::equal(trainer.to_device(form.of(values)), values));
  }
}

TEST(Doors, VariablesOfTheLoopAreSavedAsTheirValues) {
  const testing::SharedFolder shared;
  const std::string folder = shared.file("run");
  const auto forms = testing::lazy_forms();
  for (const bool saves : {true, false}) {
    const auto model = std::make_shared<OneWeight>(drawn({4}, 3));
    Trainer trainer(
        runtime(), model, SGD(0.1),
        TrainerOptions().snapshots(SnapshotOptions().folder(folder).asynchronous(false)));
    std::vector<at::Tensor> variables;
    for (const LazyForm& form : forms) {
      const at::Tensor real = drawn({4}, 7);
      const at::Tensor values = form.is_complex ? at::complex(real, real + 1) : real;
      variables.push_back(saves ? form.of(values) : at::Tensor());
    }
    for (size_t i = 0; i < forms.size(); ++i) {
      trainer.state(c10::str("variable", i), variables[i]);
    }
    if (saves) {
      trainer.step([&] { return model->weight.sum(); });
      trainer.save();
      continue;
    }
    trainer.resume(folder);
    for (size_t i = 0; i < forms.size(); ++i) {
      SCOPED_TRACE(forms[i].name);
      const at::Tensor real = drawn({4}, 7);
      EXPECT_TRUE(
          at::equal(variables[i], forms[i].is_complex ? at::complex(real, real + 1) : real));
    }
  }
}

TEST(Doors, VariablesOfTheLoopOfOtherMemoryAreRefusedByName) {
  const testing::SharedFolder shared;
  const std::string folder = shared.file("run");
  const auto model = std::make_shared<OneWeight>(drawn({4}, 3));
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().snapshots(SnapshotOptions().folder(folder).asynchronous(false)));
  at::Tensor later = at::ones({4});
  trainer.state("later", later);
  for (OddTensor odd : testing::odd_tensors()) {
    SCOPED_TRACE(odd.word);
    EXPECT_THAT(testing::error_of([&] { trainer.state("hidden", odd.tensor); }),
                AllOf(HasSubstr("\"hidden\""), HasSubstr(odd.word)));
    // Only the last rank's variable becomes one.
    later = runtime().rank() == runtime().size() - 1 ? odd.tensor : at::ones({4});
    trainer.step([&] { return model->weight.sum(); });
    EXPECT_THAT(testing::error_of([&] { trainer.save(); }),
                AllOf(HasSubstr("\"later\""), HasSubstr(odd.word)));
  }
}

TEST(Doors, WeightsAreLoadedIntoLazyTensorsAndOthersAreNamed) {
  const testing::TemporaryFolder folder;
  const at::Tensor real = drawn({4, 4}, 7);
  const at::Tensor waves = at::complex(real, real + 1);
  snapshot::save_safetensors(folder.file("real"), {{"weight", real}});
  snapshot::save_safetensors(folder.file("waves"), {{"weight", waves}});
  const auto holding = [](const at::Tensor& tensor) {
    const auto model = std::make_shared<torch::nn::Module>();
    model->register_buffer("weight", tensor);
    return model;
  };
  for (const LazyForm& form : testing::lazy_forms()) {
    SCOPED_TRACE(form.name);
    const at::Tensor& values = form.is_complex ? waves : real;
    const at::Tensor lazy = form.of(at::zeros_like(values));
    load_weights(holding(lazy), folder.file(form.is_complex ? "waves" : "real"));
    EXPECT_TRUE(at::equal(lazy, values));
  }
  for (const OddTensor& odd : testing::odd_tensors()) {
    SCOPED_TRACE(odd.word);
    EXPECT_THAT(testing::error_of([&] { load_weights(holding(odd.tensor), folder.file("real")); }),
                AllOf(HasSubstr("weight: the model's tensor "), HasSubstr(odd.word)));
  }
}

struct Samples {
  using Sample = std::pair<at::Tensor, at::Tensor>;
  size_t size() const { return 8; }
  Sample get(size_t) const { return {at::ones({4}), at::zeros({}, at::kLong)}; }
};

TEST(Doors, PredictionsOfOtherMemoryAreRefusedOnEveryRank) {
  auto loader = runtime().loader(Samples(), LoaderOptions().batch_size(2));
  OneWeight model(at::ones({4}));
  for (const OddTensor& odd : testing::odd_tensors()) {
    SCOPED_TRACE(odd.word);
    const bool is_odd = runtime().rank() == runtime().size() - 1;
    EXPECT_THAT(testing::error_of([&] {
                  evaluate(
                      runtime(), model, loader,
                      [&](const Samples::Sample& batch) {
                        return Prediction{is_odd ? odd.tensor : at::ones({2, 4}), batch.second};
                      },
                      Accuracy());
                }),
                AllOf(HasSubstr("the metric accuracy"), HasSubstr(odd.word)));
  }
}

}  // namespace
}  // namespace lockstep
