#include <lockstep/amp/muon_optimizer.h>
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

/// The number at the end of `variant` if it is `word`-NUMBER, else 0.
int64_t number_after(const std::string& word, const std::string& variant) {
  const std::string head = word + "-";
  return variant.rfind(head, 0) == 0 ? std::stoll(variant.substr(head.size())) : 0;
}

TrainerOptions options_of(const std::string& variant, int ranks) {
  TrainerOptions options;
  if (variant == "local-16") {
    return options.local_updates(LocalUpdates(16));
  }
  options.precision(Precision::O0().wire(variant == "ours-fp32" ? at::kFloat : at::kHalf));
  if (const int64_t own_leaves = number_after("reproducible", variant); own_leaves > 0) {
    options.reproducible(true).leaves(own_leaves * ranks);
  } else if (const int64_t micro_batches = number_after("accumulate", variant); micro_batches > 0) {
    options.accumulate(micro_batches);
  }
  return options.shard_optimizer(variant == "muon-sharded");
}

std::shared_ptr<OptimizerSpec> optimizer_of(const std::string& variant, const Model& model) {
  constexpr double rate = StepLoop::learning_rate;
  if (variant.rfind("muon", 0) == 0) {
    return MuonOptimizer::of(model, MuonOptions(rate), torch::optim::AdamWOptions(rate),
                             {"token", "position", "head"})
        .clone();
  }
  return AdamW(rate).clone();
}

class TrainerLoop final : public StepLoop {
 public:
  TrainerLoop(const std::string& variant, const std::string& model, int argc, char** argv)
      : runtime_(argc, argv, RuntimeOptions().threads(1)) {
    workload_ = make_workload(model);
    trainer_.emplace(runtime_, workload_.module, *optimizer_of(variant, workload_.module),
                     options_of(variant, runtime_.size()));
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

}  // namespace

std::unique_ptr<StepLoop> make_trainer_loop(const std::string& variant, const std::string& model,
                                            int argc, char** argv) {
  return std::make_unique<TrainerLoop>(variant, model, argc, argv);
}

}  // namespace lockstep::benchmarks
