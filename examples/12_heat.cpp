// Trains a surrogate of a 2-D heat equation while the simulation runs: no files in between.
//
//   lockstep run -n 2 -- build/examples/12_heat [--steps 400] [--run runs/heat]
//
// Each rank simulates a plate of its own, with periodic boundaries and a flame that moves. The
// surrogate learns to make four time steps at once, from the samples of a ring of the newest ones.
// The plate, the samples and the model are saved every 20 steps; started again, the program goes on
// from there and ends with the same bits. 12_heat.f90 is the same program in Fortran.

#include <lockstep/lockstep.h>
#include <torch/nn.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "command_line.h"

namespace {

constexpr int64_t kSize = 24;

/// A plate of kSize x kSize points.
struct Plate {
  at::Tensor heat = torch::zeros({kSize, kSize});
  int64_t step = 0;
  int rank;

  explicit Plate(int of_rank) : rank(of_rank) {}

  void burn() { heat.index_put_({(3 * step + 5 * rank) % kSize, (7 * (step / 8)) % kSize}, 1.0); }
  void advance() {
    for (int part = 0; part < 4; ++part) {
      heat = heat + 0.2 * (heat.roll(1, 0) + heat.roll(-1, 0) + heat.roll(1, 1) + heat.roll(-1, 1) -
                           4 * heat);
    }
    ++step;
  }
};

torch::nn::Sequential surrogate() {
  const auto convolution = [](int64_t in, int64_t out) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, 5).padding(2).padding_mode(torch::kCircular));
  };
  return torch::nn::Sequential(convolution(1, 8), torch::nn::Tanh(), convolution(8, 1));
}

struct Options {
  int64_t steps = 400;
  std::string run = "runs/heat";
};

void train(lockstep::Runtime& runtime, const Options& options) {
  Plate plate(runtime.rank());
  torch::nn::Sequential model = surrogate();
  lockstep::SampleBuffer samples(runtime,
                                 {torch::zeros({1, kSize, kSize}), torch::zeros({1, kSize, kSize})},
                                 lockstep::SampleBufferOptions().capacity(64).batch_size(8));
  lockstep::Trainer trainer(
      runtime, model, lockstep::AdamW(5e-3),
      lockstep::TrainerOptions().snapshots(lockstep::SnapshotOptions().folder(options.run)));
  trainer.state("heat", plate.heat);
  trainer.state("step", plate.step);
  samples.save_in(trainer, "samples");
  trainer.resume();

  while (plate.step < options.steps) {
    plate.burn();
    const at::Tensor before = plate.heat.unsqueeze(0);
    plate.advance();
    samples.push({before, plate.heat.unsqueeze(0)});
    if (!samples.ready()) {
      continue;
    }
    const std::vector<at::Tensor> drawn = trainer.to_device(samples.batch());
    const lockstep::StepReport report =
        trainer.step(drawn, [&](const std::vector<at::Tensor>& batch) {
          return torch::mse_loss(model->forward(batch[0]), batch[1]);
        });
    if (plate.step % 20 == 0) {
      if (runtime.is_main()) {
        std::printf("step %ld  update %ld  loss %.9e\n", plate.step, report.update(),
                    report.loss());
        std::fflush(stdout);
      }
      trainer.save();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a surrogate of a heat equation while the simulation runs");
  app.add_option("--steps", options.steps, "Steps of the simulation")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--run", options.run, "Folder of the snapshots")->capture_default_str();
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
