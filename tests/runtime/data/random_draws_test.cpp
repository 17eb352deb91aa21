// Random numbers: those of samples depend on the sample alone, those of ranks differ.
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/loader.h>
#include <torch/data/datasets.h>
#include <torch/data/transforms.h>
#include <torch/nn/modules/dropout.h>

#include <functional>
#include <map>

#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Augmentation where every PyTorch user writes it.
struct Augmented {
  size_t size() const { return 37; }
  std::pair<at::Tensor, int64_t> get(size_t index) const {
    at::Tensor sample = at::arange(4, at::kFloat) + static_cast<double>(index);
    if (at::rand({1}).item<float>() < 0.5F) {
      sample = sample.flip(0);
    }
    return {sample + 0.1 * at::randn_like(sample), static_cast<int64_t>(index)};
  }
};

/// The same by a transform of torch::data, below one that makes a ready batch.
struct Plain : torch::data::datasets::Dataset<Plain> {
  torch::data::Example<> get(size_t index) override {
    const auto number = static_cast<int64_t>(index);
    return {at::full({3}, number, at::kFloat), at::scalar_tensor(number, at::kLong)};
  }
  std::optional<size_t> size() const override { return 37; }
};
torch::data::Example<> noisy(torch::data::Example<> example) {
  return {example.data + at::randn({3}), example.target};
}

using Samples = std::map<std::pair<int64_t, int64_t>, at::Tensor>;  // by epoch and index

template <typename Dataset>
Samples samples_of(Loader<Dataset>& loader) {
  Samples samples;
  for (auto& batch : loader) {
    at::Tensor data, numbers;
    if constexpr (std::is_same_v<std::decay_t<decltype(batch)>, torch::data::Example<>>) {
      data = batch.data;
      numbers = batch.target;
    } else {
      data = batch.first;
      numbers = batch.second;
    }
    for (int64_t i = 0; i < data.size(0); ++i) {
      samples[{loader.epoch(), numbers[i].template item<int64_t>()}] = data[i];
    }
  }
  return samples;
}

/// Each of `some` has the bits that `all` has for it.
void expect_among(const Samples& some, const Samples& all) {
  for (const auto& [place, sample] : some) {
    ASSERT_EQ(all.count(place), 1U);
    EXPECT_TRUE(at::equal(sample, all.at(place)))
        << "epoch " << place.first << " sample " << place.second;
  }
}

LoaderOptions two_epochs() {
  return LoaderOptions().batch_size(4).shuffle(true).epochs(2);
}

TEST(RandomDraws, ASampleIsTheSameWithAnyWorkersAndRanks) {
  Loader<Augmented> reference({}, 0, 1, 5, two_epochs());
  const Samples all = samples_of(reference);
  ASSERT_EQ(all.size(), 74U);
  for (int64_t sample = 0; sample < 37; ++sample) {
    EXPECT_FALSE(at::equal(all.at({0, sample}), all.at({1, sample}))) << "drawn once for all";
  }
  for (const int workers : {0, 1, 2, 3}) {
    for (int again = 0; again < 3; ++again) {
      Loader<Augmented> loader({}, runtime().rank(), runtime().size(), 5,
                               two_epochs().workers(workers));
      at::randn({again + 1});
      expect_among(samples_of(loader), all);
    }
  }
  Loader<Augmented> other({}, 0, 1, 6, two_epochs());
  EXPECT_FALSE(at::equal(samples_of(other).at({0, 0}), all.at({0, 0}))) << "the seed is not used";
}

TEST(RandomDraws, TransformsOfTorchDataDrawForTheirSample) {
  const auto make = [](int rank, int ranks, int64_t batch_size, int workers) {
    auto dataset = Plain()
                       .map(torch::data::transforms::Lambda<torch::data::Example<>>(noisy))
                       .map(torch::data::transforms::Stack<>());
    return Loader<decltype(dataset)>(std::move(dataset), rank, ranks, 5,
                                     two_epochs().batch_size(batch_size).workers(workers));
  };
  auto reference = make(0, 1, 4, 0);
  const Samples all = samples_of(reference);
  for (const int workers : {0, 2}) {
    auto loader = make(runtime().rank(), runtime().size(), 3, workers);
    expect_among(samples_of(loader), all);
  }
}

TEST(RandomDraws, ALoaderThatGoesOnGivesTheSameSamples) {
  Loader<Augmented> reference({}, 0, 1, 5, two_epochs());
  const Samples all = samples_of(reference);
  for (const int workers : {0, 2}) {
    Loader<Augmented> loader({}, 0, 1, 5, two_epochs().workers(workers));
    loader.seek({0, 3});
    const Samples rest = samples_of(loader);
    EXPECT_EQ(rest.size(), 74U - 12U);
    expect_among(rest, all);
  }
}

TEST(RandomDraws, LoadingTakesNothingFromTheDefaultStream) {
  at::manual_seed(3);
  const at::Tensor expected = at::randn({4});
  for (const int workers : {0, 2}) {
    at::manual_seed(3);
    Loader<Augmented> loader({}, 0, 1, 5, two_epochs().workers(workers));
    samples_of(loader);
    EXPECT_TRUE(at::equal(at::randn({4}), expected)) << workers << " workers";
  }
}

TEST(RandomDraws, EveryRandomOperatorDrawsForTheSample) {
  const at::Tensor half = at::full({16}, 0.5);
  const std::vector<std::pair<const char*, std::function<at::Tensor()>>> operators = {
      {"rand", [] { return at::rand({16}); }},
      {"randn", [] { return at::randn({16}); }},
      {"randint", [] { return at::randint(1000, {16}); }},
      {"randperm", [] { return at::randperm(16); }},
      {"rand_like", [&] { return at::rand_like(half); }},
      {"randn_like", [&] { return at::randn_like(half); }},
      {"bernoulli", [&] { return at::bernoulli(half); }},
      {"multinomial", [&] { return at::multinomial(half, 16, true); }},
      {"normal", [&] { return at::normal(half, half); }},
      {"normal_", [] { return at::empty({16}).normal_(); }},
      {"uniform_", [] { return at::empty({16}).uniform_(-1, 1); }},
      {"exponential_", [] { return at::empty({16}).exponential_(); }},
      {"poisson", [&] { return at::poisson(half * 20); }},
      {"dropout", [&] { return at::dropout(half, 0.5, /*train=*/true); }},
      {"Dropout", [&] { return torch::nn::Dropout(0.5)->forward(half); }},
      {"rrelu", [&] { return at::rrelu(-half, 0.1, 0.9, /*training=*/true); }},
  };
  for (const auto& [name, draw] : operators) {
    const auto drawn = [&draw = draw](uint64_t seed) {
      const SampleRandom random(seed);
      return draw();
    };
    const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
    const at::Tensor first = drawn(1);
    EXPECT_TRUE(at::equal(drawn(1), first)) << name;
    EXPECT_FALSE(at::equal(drawn(2), first)) << name;
    EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), state)) << name;
    draw();
    EXPECT_FALSE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), state))
        << name << " does not draw at all";
  }
  const SampleRandom random(1);
  const auto own = at::detail::createCPUGenerator(7);
  EXPECT_TRUE(at::equal(at::randn({4}, own), at::randn({4}, at::detail::createCPUGenerator(7))))
      << "a generator that the call names was not used";
}

/// The loss of a run over augmented samples with dropout, stopped after so many updates and gone on
/// with in `folder`.
double trained(const std::string& folder, int workers, int64_t stop_at) {
  at::manual_seed(1);
  torch::nn::Linear net(4, 1);
  net->to(testing::device());
  Trainer trainer(runtime(), net, AdamW(1e-2));
  auto loader = runtime().loader(Augmented(), two_epochs().batch_size(3).workers(workers));
  trainer.resume(folder);
  for (auto& on_host : loader) {
    const auto batch = trainer.to_device(on_host);
    trainer.step([&] {
      return at::dropout(net->forward(batch.first), 0.3, /*train=*/true).square().mean();
    });
    if (trainer.updates() == stop_at) {
      break;
    }
  }
  trainer.save();
  return net->weight.sum().item<double>();
}

TEST(RandomDraws, AnAugmentedRunIsTheSameInAnyRunWorkersAndResume) {
  const SharedFolder folder;
  const double unbroken = trained(folder.file("0"), 0, 1000);
  int run = 0;
  for (const int workers : {2, 2, 2, 1}) {
    EXPECT_EQ(trained(folder.file(std::to_string(++run)), workers, 1000), unbroken)
        << workers << " workers";
  }
  trained(folder.file("broken"), 2, 4);
  EXPECT_EQ(trained(folder.file("broken"), 2, 1000), unbroken) << "stopped and gone on with";
}

/// True if no two ranks have the same.
bool differs_on_all_ranks(const at::Tensor& mine) {
  Communicator control = runtime().control();
  const at::Tensor flat = mine.detach().to(at::kCPU, at::kFloat).flatten().contiguous();
  const at::Tensor all = at::empty({runtime().size(), flat.numel()});
  control.all_gather(all, flat).wait();
  for (int a = 0; a < runtime().size(); ++a) {
    for (int b = 0; b < a; ++b) {
      if (at::equal(all[a], all[b])) {
        return false;
      }
    }
  }
  return true;
}

at::Tensor mask() {
  return at::dropout(testing::ones({64}), 0.5, /*train=*/true);
}

TEST(RandomDraws, RanksDrawOtherDropoutMasksHoweverTheyAreWrapped) {
  const auto net = [] {
    at::manual_seed(runtime().seed());  // as Runtime does before the model is made
    return std::make_shared<testing::Mlp>();
  };
  {
    const auto model = net();
    Trainer trainer(runtime(), model, AdamW(1e-3));
    at::Tensor drawn;
    trainer.step([&]() -> Loss {
      drawn = mask();
      return model->loss(testing::ones({1, 4}), testing::ones({1, 2})) * drawn.mean();
    });
    EXPECT_TRUE(differs_on_all_ranks(drawn)) << "Trainer";
    trainer.backward(model->loss(testing::ones({1, 4}), testing::ones({1, 2})));
    trainer.update();
    EXPECT_TRUE(differs_on_all_ranks(mask())) << "backward() and update()";
  }
  {
    const auto model = net();
    DataParallel parallel(runtime().communicator(), model);
    const at::Tensor drawn = mask();
    EXPECT_TRUE(differs_on_all_ranks(drawn)) << "DataParallel";
    (model->loss(testing::ones({1, 4}), testing::ones({1, 2})) * drawn.mean()).backward();
    parallel.finish();
  }
  const auto model = net();
  runtime().seed_ranks();
  EXPECT_TRUE(differs_on_all_ranks(mask())) << "a loop by hand";
}

TEST(RandomDraws, DataParallelLeavesOtherStreamsAsTheyAre) {
  const auto after = [](uint64_t seed) {
    at::manual_seed(seed);
    const auto model = std::make_shared<testing::Mlp>();
    const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
    const DataParallel parallel(runtime().communicator(), model);
    return at::equal(at::detail::getDefaultCPUGenerator().get_state(), state);
  };
  EXPECT_EQ(after(11), runtime().is_main()) << "ranks that were seeded alike";
  EXPECT_TRUE(after(11 + runtime().rank())) << "ranks that the program seeded differently";
}

}  // namespace
}  // namespace lockstep
