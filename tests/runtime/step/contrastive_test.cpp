// Losses that compare the samples of all ranks train as on one rank with the joined batch.
#include "runtime/trainer_runs.h"
#include "test_names.h"

#include <lockstep/collectives/with_gradients.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/normalization.h>

#include <functional>
#include <memory>

namespace lockstep {
namespace {

namespace F = torch::nn::functional;

constexpr int64_t kSamples = 24;  // of all ranks
constexpr int64_t kUpdates = 3;

at::Tensor normalized(const at::Tensor& x) {
  return F::normalize(x, F::NormalizeFuncOptions().dim(1));
}

/// Two encoders: one for SimCLR, both for CLIP.
struct Encoders : torch::nn::Module {
  Encoders()
      : image(register_module("image", std::make_shared<Mlp>())),
        text(register_module("text", std::make_shared<Mlp>())) {
    const at::NoGradGuard no_grad;
    uint64_t seed = 0;
    for (const at::Tensor& weight : parameters()) {
      weight.copy_(drawn(weight.sizes(), ++seed) * 0.5);
    }
  }
  std::shared_ptr<Mlp> image;
  std::shared_ptr<Mlp> text;
};

/// The loss of the samples [first, first + x.size(0)) of all: their mean.
using LossOf = std::function<at::Tensor(Encoders&, const Communicator&, const at::Tensor& x,
                                        const at::Tensor& y, int64_t first)>;

at::Tensor clip(Encoders& net, const Communicator& ranks, const at::Tensor& x, const at::Tensor& y,
                int64_t first) {
  const at::Tensor images = normalized(net.image->forward(x));
  const at::Tensor texts = normalized(net.text->forward(y));
  const at::Tensor right = at::arange(first, first + x.size(0), at::kLong);
  const auto one_way = [&](const at::Tensor& own, const at::Tensor& other) {
    return F::cross_entropy(own.matmul(all_gather_with_gradients(ranks, other).t()) / 0.2, right);
  };
  return (one_way(images, texts) + one_way(texts, images)) / 2;
}

at::Tensor simclr(Encoders& net, const Communicator& ranks, const at::Tensor& x,
                  const at::Tensor& y, int64_t first) {
  const int64_t rows = x.size(0);
  const at::Tensor one = normalized(net.image->forward(x));
  const at::Tensor two = normalized(net.image->forward(y));
  const at::Tensor all_one = all_gather_with_gradients(ranks, one);
  const at::Tensor all_two = all_gather_with_gradients(ranks, two);
  const at::Tensor right = at::arange(first, first + rows, at::kLong);
  const auto one_way = [&](const at::Tensor& own, const at::Tensor& views, const at::Tensor& same) {
    at::Tensor negatives = own.matmul(same.t()) / 0.2;
    negatives = negatives.scatter(1, right.unsqueeze(1), -1e9);  // itself
    return F::cross_entropy(at::cat({own.matmul(views.t()) / 0.2, negatives}, 1), right);
  };
  return (one_way(one, all_two, all_one) + one_way(two, all_one, all_two)) / 2;
}

/// Masters after the updates on the ranks of `of`, each with its share of the samples.
at::Tensor trained(Runtime& of, const LossOf& loss) {
  const auto net = std::make_shared<Encoders>();
  Trainer trainer(of, net, SGD(0.1), TrainerOptions().unused(UnusedParameters::zeros));
  const Communicator ranks = of.communicator().split(0);
  const int64_t rows = kSamples / of.size();
  const int64_t first = rows * of.rank();
  for (int64_t step = 0; step < kUpdates; ++step) {
    const auto seed = static_cast<uint64_t>(100 + 2 * step);
    const at::Tensor x = drawn({kSamples, 4}, seed).narrow(0, first, rows);
    const at::Tensor y = drawn({kSamples, 4}, seed + 1).narrow(0, first, rows);
    trainer.step([&]() -> Loss { return loss(*net, ranks, x, y, first); });
  }
  return flat_masters(trainer);
}

void expect_as_on_one_rank(const LossOf& loss) {
  Runtime alone = solo_runtime();
  EXPECT_LT(relative_distance(trained(runtime(), loss), trained(alone, loss)), 2e-6);
}

TEST(ContrastiveLosses, ClipTrainsAsOnOneRankWithTheJoinedBatch) {
  expect_as_on_one_rank(clip);
}

TEST(ContrastiveLosses, SimClrTrainsAsOnOneRankWithTheJoinedBatch) {
  expect_as_on_one_rank(simclr);
}

TEST(ContrastiveLosses, WithAnotherNumberOfSamplesOnEachRankSumTheirLosses) {
  const auto loss_of = [](Encoders& net, const Communicator& ranks, const at::Tensor& x,
                          int64_t first) {
    const at::Tensor own = normalized(net.image->forward(x));
    const at::Tensor all = all_gather_with_gradients(ranks, own);
    return F::cross_entropy(own.matmul(all.t()) / 0.2,
                            at::arange(first, first + x.size(0), at::kLong),
                            F::CrossEntropyFuncOptions().reduction(torch::kSum));
  };
  const auto run = [&](Runtime& of, int64_t first, int64_t rows) {
    const auto net = std::make_shared<Encoders>();
    for (const at::Tensor& weight : net->text->parameters()) {
      weight.set_requires_grad(false);
    }
    Trainer trainer(of, net, SGD(0.1));
    const Communicator ranks = of.communicator().split(0);
    for (int64_t step = 0; step < kUpdates; ++step) {
      const at::Tensor x = drawn({kSamples, 4}, static_cast<uint64_t>(step)).narrow(0, first, rows);
      trainer.step(
          [&] { return Loss::sum(loss_of(*net, ranks, x, first), static_cast<double>(rows)); });
    }
    return flat_masters(trainer);
  };
  const int rank = runtime().rank();
  const int64_t first = rank * (rank + 1) / 2;
  const bool is_last = rank == runtime().size() - 1;
  Runtime alone = solo_runtime();
  EXPECT_LT(relative_distance(run(runtime(), first, is_last ? kSamples - first : rank + 1),
                              run(alone, 0, kSamples)),
            2e-6);
}

}  // namespace
}  // namespace lockstep
