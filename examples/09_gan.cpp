// Two networks with an optimizer, a loss scale and snapshots each: a generator learns to draw
// points on a ring of eight spots, a discriminator learns to tell them from real ones.
//
//   lockstep run -n 2 -- build/examples/09_gan [--steps 1500] [--precision O1] [--resume] ...
//
// A step of one network uses the other one, and moves only its own weights: each Trainer takes the
// gradients of its own model. Gradients travel in fp16 by default, so both loss scales are at work.
// It ends with the share of points near a spot and the number of spots found, of 8.

#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer_options.h>
#include <torch/nn.h>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "command_line.h"
#include "precision_options.h"
#include "result_file.h"

namespace {

struct Options {
  std::string run = "runs/gan";
  bool resume = false;
  int64_t steps = 1500;
  int64_t save_every = 500;
  double min_near = 0.0;
  PrecisionOptions precision{"O0", "bf16", "fp16"};
};

torch::Tensor spots() {
  const torch::Tensor angle = torch::arange(8) * (2.0 * M_PI / 8.0);
  return torch::stack({angle.cos(), angle.sin()}, 1);
}

/// Points near the spots: [2] each.
struct Ring {
  torch::Tensor points = spots().repeat({512, 1}) + 0.05 * torch::randn({8 * 512, 2});
  size_t size() const { return static_cast<size_t>(points.size(0)); }
  torch::Tensor get(size_t index) const { return points[static_cast<int64_t>(index)]; }
};

constexpr int64_t kNoise = 8;

torch::nn::Sequential network(int64_t in, int64_t out) {
  return torch::nn::Sequential(torch::nn::Linear(in, 64), torch::nn::GELU(),
                               torch::nn::Linear(64, 64), torch::nn::GELU(),
                               torch::nn::Linear(64, out));
}

lockstep::TrainerOptions trainer_options(const Options& options, const std::string& network) {
  return lockstep::TrainerOptions()
      .precision(precision_of(options.precision))
      .snapshots(lockstep::SnapshotOptions()
                     .folder(options.run + "/" + network)
                     .asynchronous(false));  // one is complete before the other begins
}

void train(lockstep::Runtime& runtime, const Options& options) {
  auto loader = runtime.loader(Ring(), lockstep::LoaderOptions()
                                           .batch_size(128 / runtime.size())
                                           .shuffle(true)
                                           .epochs(options.steps));
  torch::nn::Sequential generator = network(kNoise, 2), discriminator = network(2, 1);
  const lockstep::Adam optimizer = lockstep::Adam(1e-3).beta1(0.5);
  lockstep::Trainer draws(runtime, generator, optimizer, trainer_options(options, "generator"));
  lockstep::Trainer judges(runtime, discriminator, optimizer,
                           trainer_options(options, "discriminator"));
  const auto drawn = [&](int64_t count) {
    const auto noise = torch::randn({count, kNoise}, torch::TensorOptions(runtime.device()));
    return generator->forward(noise);
  };

  // A skipped update counts for one network only, so each snapshot of the generator knows to which
  // one of the discriminator it belongs.
  int64_t step = 0, judged = 0;
  draws.state("step", step);
  draws.state("judged", judged);
  if (options.resume && draws.resume().resumed) {
    std::ostringstream name;
    name << "/discriminator/step-" << std::setw(12) << std::setfill('0') << judged;
    judges.resume(options.run + name.str());
  }
  draws.stop_on_signals();
  lockstep::Progress progress("train", options.steps, runtime.is_main());
  for (auto& batch : loader) {
    if (step == options.steps) {
      break;
    }
    const lockstep::StepReport judge = judges.step([&] {
      const torch::Tensor real = judges.to_device(batch);
      const torch::Tensor made = drawn(real.size(0)).detach();
      return torch::softplus(-discriminator->forward(real)).mean() +
             torch::softplus(discriminator->forward(made)).mean();
    });
    const lockstep::StepReport draw = draws.step(
        [&] { return torch::softplus(-discriminator->forward(drawn(batch.size(0)))).mean(); });
    ++step;
    progress.show(step, {{"discriminator", judge.loss()}, {"generator", draw.loss()}});
    if (step % options.save_every == 0 || draws.stop_requested()) {
      judged = judges.updates();
      judges.save();
      if (draws.stop_requested()) {
        draws.save_and_leave();
      }
      draws.save();
    }
  }

  const torch::NoGradGuard no_grad;
  const auto region = draws.autocast();
  torch::manual_seed(1);
  const auto distance = torch::cdist(drawn(2048).to(torch::kCPU, torch::kFloat), spots());
  const auto [nearest, spot] = distance.min(1);
  const double near = (nearest < 0.25).to(torch::kFloat).mean().item<double>();
  const auto found = spot.masked_select(nearest < 0.25).bincount({}, 8).gt(0).sum();
  ResultFile result(runtime, options.run + "/result.json");
  result.add("near a spot", near);
  result.add("spots found", static_cast<double>(found.item<int64_t>()));
  result.add("generator's updates", static_cast<double>(draws.updates()));
  result.write();
  LOCKSTEP_CHECK(near >= options.min_near, "a share of ", near, " is near a spot, expected ",
                 options.min_near);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a generator and a discriminator.");
  app.add_option("--run", options.run, "Folder of snapshots and result")->capture_default_str();
  app.add_flag("--resume", options.resume, "Go on from the newest snapshots in --run, if any");
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--save-every", options.save_every, "Steps")->check(CLI::PositiveNumber);
  app.add_option("--min-near", options.min_near, "Fail if fewer points are near a spot");
  add_options(app, options.precision);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
