#include <lockstep/runtime/step_trace.h>
#include <lockstep/runtime/trainer.h>

#include <cstdlib>
#include <optional>

#include "step_loop.h"

namespace lockstep::benchmarks {
namespace {

/// Null for none; of processes that run side by side the first one writes.
const char* trace_file() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr || std::string(rank) == "0" ? std::getenv("LOCKSTEP_BENCH_TRACE")
                                                     : nullptr;
}

class TrainerLoop final : public StepLoop {
 public:
  TrainerLoop(const TrainerOptions& options, const std::string& model, int argc, char** argv)
      : runtime_(argc, argv, RuntimeOptions().threads(1)) {
    workload_ = make_workload(model);
    trainer_.emplace(runtime_, workload_.module, AdamW(learning_rate), options);
  }

  void step() override {
    if (steps_++ == warm_up_steps && trace_file_ != nullptr) {
      trace_.emplace(runtime_);
    }
    trainer_->step([this] { return Loss(workload_.loss()); });
  }

  void finish() override {
    if (trace_) {
      trace_->write(trace_file_);
    }
  }

 private:
  Runtime runtime_;
  std::optional<Trainer> trainer_;
  const char* trace_file_ = trace_file();
  std::optional<StepTrace> trace_;
  int steps_ = 0;
};

TrainerOptions options_of(const std::string& variant) {
  TrainerOptions options;
  if (variant == "local-16") {
    options.local_updates(LocalUpdates(16));
  } else {
    options.precision(Precision::O0().wire(variant == "ours-fp16" ? at::kHalf : at::kFloat));
  }
  return options;
}

}  // namespace

std::unique_ptr<StepLoop> make_trainer_loop(const std::string& variant, const std::string& model,
                                            int argc, char** argv) {
  return std::make_unique<TrainerLoop>(options_of(variant), model, argc, argv);
}

}  // namespace lockstep::benchmarks
