// step VARIANT MODEL STEPS: times training steps; step_loop.h names the variants, models.h the
// models.
#include <lockstep/runtime/storage/impl/versions.h>
#include <torch/nn/module.h>

#include <iostream>

#include "recorder.h"
#include "step_loop.h"

namespace {

/// What an update pays so that LibTorch knows of it.
void measure_versions(torch::nn::Module& module, const std::string& model, int steps) {
  const lockstep::Model parts(module);
  lockstep::benchmarks::Series series(model, "versions");
  series.note("parameters", lockstep::benchmarks::count_parameters(module));
  for (int step = 0; step < steps; ++step) {
    series.begin();
    lockstep::detail::note_writes(parts.parameters());
    series.end();
  }
  series.write();
}

int measure(const std::string& variant, const std::string& model, int steps, int argc,
            char** argv) {
  using namespace lockstep::benchmarks;
  const bool peer = variant.rfind("libtorch", 0) == 0;
  const auto loop =
      peer ? make_libtorch_loop(variant, model) : make_trainer_loop(variant, model, argc, argv);
  Series series(model, variant);
  series.note("parameters", count_parameters(*loop->workload().module));
  for (int step = 0; step < StepLoop::warm_up_steps + steps; ++step) {
    loop->workload().next_batch();
    if (step < StepLoop::warm_up_steps) {
      loop->step();
      continue;
    }
    series.begin();
    loop->step();
    series.end();
  }
  loop->finish();
  series.write();
  if (variant == "ours-fp32" && model == "scales") {
    measure_versions(*loop->workload().module, model, steps);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " VARIANT MODEL STEPS\n";
    return 2;
  }
  try {
    return measure(argv[1], argv[2], std::stoi(argv[3]), argc, argv);
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
