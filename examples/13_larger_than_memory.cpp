// A model whose training state is larger than the memory that a process may have.
//
//   lockstep run -n 4 -- build/examples/13_larger_than_memory            # trains
//   lockstep run -n 4 -- build/examples/13_larger_than_memory --plain    # ends with exit code 23
//
// Each rank limits its own memory to --limit times the bytes of the weights, as a small machine
// would. A plain run needs more than three times: weights, two moments, gradients. Here the ranks
// make the model one after another, keep one copy of the weights, and shard gradients and moments.
// The weights have the bits of a plain run without a limit.

#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer_options.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/nn.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "command_line.h"

namespace {

struct Options {
  int64_t width = 3072;
  int64_t blocks = 6;
  int64_t steps = 5;
  double limit = 2.8;
  bool plain = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--width", options.width)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--blocks", options.blocks)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--limit", options.limit, "Memory of a rank, in bytes of the weights; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--plain", options.plain, "Construct, hold and update everything on every rank");
}

/// Residual blocks of one matrix each.
struct NetImpl : torch::nn::Module {
  NetImpl(int64_t width, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), torch::nn::Linear(width, width)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) {
      x = x + torch::tanh(block->forward(x));
    }
    return x;
  }
  std::vector<torch::nn::Linear> blocks;
};
TORCH_MODULE(Net);

/// Bytes of memory that belongs to this process alone.
int64_t private_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmData:") {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

void train(lockstep::Runtime& runtime, const Options& options) {
  const auto weights = static_cast<double>(options.blocks * options.width * (options.width + 1) *
                                           static_cast<int64_t>(sizeof(float)));
  if (options.limit > 0.0) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20);  // freed tensors count no more
    const auto bytes =
        static_cast<rlim_t>(private_bytes() + static_cast<int64_t>(options.limit * weights));
    const rlimit limit{bytes, bytes};
    LOCKSTEP_CHECK(setrlimit(RLIMIT_DATA, &limit) == 0, "the memory cannot be limited");
  }
  const auto make = [&] { return Net(options.width, options.blocks); };
  Net net = options.plain ? make() : runtime.construct(make);
  lockstep::Trainer trainer(runtime, net, lockstep::AdamW(1e-3),
                            lockstep::TrainerOptions().shard_optimizer(!options.plain));
  for (int64_t step = 1; step <= options.steps; ++step) {
    const lockstep::StepReport report = trainer.step([&] {
      const at::Tensor x = torch::randn({4, options.width});
      return torch::mse_loss(net->forward(x), x.flip(1));
    });
    if (runtime.is_main()) {
      std::printf("step %2d  loss %.4f\n", static_cast<int>(step), report.loss());
    }
  }
  LOCKSTEP_CHECK(trainer.updates() == options.steps, "only ", trainer.updates(), " updates");
}

}  // namespace

int main(int argc, char** argv) {
  return run_with_options<Options>("Trains a model larger than a process may be.", argc, argv,
                                   train);
}
