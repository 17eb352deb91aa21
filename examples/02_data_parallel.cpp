// A training loop of one's own: DataParallel averages gradients, any torch::optim steps.
//
//   lockstep run -n 2 -- build/examples/02_data_parallel
//
// Fits y = 2 a - 3 b + 1 from samples with a little noise, each rank on its share of them.
// Expected on any number of ranks, with the last digits differing:
//   epoch 1  loss 2.9553
//   ...
//   epoch 8  loss 0.0001
//   weight 2.00 -3.00  bias 1.00

#include <lockstep/lockstep.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <cstdio>

namespace {

/// 1024 points (a, b) with y: the same on every rank.
struct Plane {
  at::Tensor points;
  at::Tensor values;

  Plane() : points(torch::randn({1024, 2})) {
    values = points.matmul(torch::tensor({2.0F, -3.0F})) + 1.0F + 0.01F * torch::randn({1024});
  }
  size_t size() const { return 1024; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    return {points[static_cast<int64_t>(index)], values[static_cast<int64_t>(index)]};
  }
};

double mean_over_ranks(const lockstep::Runtime& runtime, double value) {
  const at::Tensor mean = torch::full({1}, value, torch::kDouble);
  lockstep::Communicator(runtime.control()).all_reduce(mean, lockstep::ReduceOp::avg()).wait();
  return mean.item<double>();
}

void train(lockstep::Runtime& runtime) {
  auto loader = runtime.loader(Plane(), lockstep::LoaderOptions().batch_size(32).shuffle(true));
  torch::nn::Linear model(2, 1);
  model->to(runtime.device());
  lockstep::DataParallel parallel(runtime.communicator(), model);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));

  double loss_of_epoch = 0.0;
  for (int epoch = 1; epoch <= 8; ++epoch) {
    double sum = 0.0;
    for (auto& batch : loader) {
      const auto [points, values] = lockstep::moved(batch, runtime.device());
      model->zero_grad();
      const at::Tensor loss = torch::mse_loss(model->forward(points).squeeze(1), values);
      loss.backward();
      parallel.finish();  // now every rank's gradients are the average
      optimizer.step();
      sum += loss.item<double>();
    }
    loss_of_epoch = mean_over_ranks(runtime, sum / static_cast<double>(loader.batches_per_epoch()));
    if (runtime.is_main()) {
      std::printf("epoch %d  loss %.4f\n", epoch, loss_of_epoch);
    }
  }
  LOCKSTEP_CHECK(loss_of_epoch < 1e-3, "the loss is ", loss_of_epoch, ", expected below 0.001");
  if (runtime.is_main()) {
    const at::Tensor weight = model->weight.detach();
    std::printf("weight %.2f %.2f  bias %.2f\n", weight[0][0].item<double>(),
                weight[0][1].item<double>(), model->bias.item<double>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, train);
}
