// Activation checkpointing by hand: a small convolutional net whose six blocks are computed again
// in backward; only their inputs are kept. The loss is the same with --plain, bit for bit, and the
// memory is less than half. One checkpointed block would save next to nothing: when backward comes
// to it, its activations are there again, beside those that all other blocks keep.
//
//   lockstep run -n 2 -- build/examples/05_cifar_convnet [--data data_batch_1.bin ...] [--plain]
//
// --data takes files of CIFAR-10's binary version; without it the program makes up its images.
// Expected on 2 ranks, without --data, here on an Intel Xeon; with --plain the peak is 134.3:
//   result                 value
//   ---------------------  -----
//   loss                   1.166
//   peak activations, MiB  56.75
//   training seconds       ...

#include <lockstep/lockstep.h>
#include <torch/nn.h>

#include <iostream>

#include "command_line.h"
#include "result_file.h"

namespace {

namespace nn = torch::nn;

struct Options {
  std::vector<std::string> data;
  std::string out = "runs/cifar_convnet/result.json";
  int64_t epochs = 3;
  int64_t batch_size = 64;
  bool plain = false;
};

struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t channels)
      : layers(register_module(
            "layers", nn::Sequential(convolution(channels, channels), nn::BatchNorm2d(channels),
                                     nn::ReLU(), convolution(channels, channels),
                                     nn::BatchNorm2d(channels), nn::Dropout(0.1)))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(x + layers->forward(x)); }
  static nn::Conv2d convolution(int64_t in, int64_t out) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
  }
  nn::Sequential layers;
};
TORCH_MODULE(Block);

struct ConvNetImpl : nn::Module {
  explicit ConvNetImpl(bool plain) : plain(plain) {
    for (int i = 0; i < 6; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block(16)));
    }
  }
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = stem(images);
    for (Block& block : blocks) {
      // Dropout and batch norm are no obstacle: recompute draws the same numbers, and statistics
      // move once.
      x = plain ? block(x) : lockstep::checkpoint(block, x);
    }
    return head(torch::adaptive_avg_pool2d(x, {4, 4}).flatten(1));
  }
  const bool plain;
  nn::Conv2d stem = register_module("stem", BlockImpl::convolution(3, 16));
  std::vector<Block> blocks;
  nn::Linear head = register_module("head", nn::Linear(16 * 4 * 4, 10));
};
TORCH_MODULE(ConvNet);

/// Class c is a bright column, in noise.
lockstep::LabelledImages made_up_images(int64_t count) {
  const torch::Tensor labels = torch::arange(count) % 10;
  torch::Tensor images = torch::randint(0, 100, {count, 3, 32, 32}, torch::kByte);
  for (int64_t i = 0; i < count; ++i) {
    images[i].narrow(2, 3 * labels[i].item<int64_t>(), 3).fill_(230);
  }
  return {images, labels};
}

void train(lockstep::Runtime& runtime, const Options& options) {
  const auto images =
      options.data.empty() ? made_up_images(256) : lockstep::read_cifar10(options.data);
  auto loader = runtime.loader(images, lockstep::LoaderOptions()
                                           .batch_size(options.batch_size)
                                           .shuffle(true)
                                           .epochs(options.epochs));
  ConvNet model(options.plain);
  lockstep::Trainer trainer(runtime, model, lockstep::AdamW(1e-3));

  int64_t peak = 0;
  double loss = 0.0;
  const Stopwatch watch;
  for (auto& batch : loader) {
    const lockstep::MemoryMeter meter(runtime.device().type());
    const lockstep::StepReport report = trainer.step([&] {
      const auto [pixels, labels] = trainer.to_device(batch);
      const torch::Tensor scores = model->forward(pixels.to(torch::kFloat).div(127.5).sub(1.0));
      return nn::functional::cross_entropy(scores, labels);
    });
    loss = report.loss();
    peak = std::max(peak, meter.peak());
  }
  ResultFile result(runtime, options.out);
  result.add("loss", loss);
  result.add("peak activations, MiB", static_cast<double>(peak) / (1 << 20));
  result.add("training seconds", watch.seconds());
  result.write();
  LOCKSTEP_CHECK(loss < 2.25, "nothing was learned: loss ", loss, ", expected below 2.25");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a convolutional net of checkpointed blocks.");
  app.add_option("--data", options.data, "CIFAR-10 files (binary version); default: made-up");
  app.add_option("--out", options.out, "Result file")->capture_default_str();
  app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Of each rank")->check(CLI::PositiveNumber);
  app.add_flag("--plain", options.plain, "Keep all activations");
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
