#include <lockstep/amp/muon_optimizer.h>
#include <lockstep/runtime/step_trace.h>
#include <lockstep/runtime/trainer.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "step_loop.h"

namespace lockstep::benchmarks {
namespace {

/// Empty for none; processes that run side by side write one each, FILE.RANK.
std::string trace_file() {
  const char* file = std::getenv("LOCKSTEP_BENCH_TRACE");
  const char* rank = std::getenv("RANK");
  return file == nullptr ? "" : rank == nullptr ? file : std::string(file) + "." + rank;
}

TrainerOptions options_of(const std::string& variant, int ranks) {
  const size_t dash = std::min(variant.find('-'), variant.size());
  const std::string kind = variant.substr(0, dash);
  const std::string rest = dash < variant.size() ? variant.substr(dash + 1) : "";
  if (kind == "local") {
    return TrainerOptions().local_updates(LocalUpdates(std::stoll(rest)));
  }
  const auto wire = rest == "fp32" ? at::kFloat : at::kHalf;
  TrainerOptions options = TrainerOptions().precision(Precision::O0().wire(wire));
  if (kind == "reproducible") {
    return options.reproducible(true).leaves(std::stoll(rest) * ranks);
  }
  if (kind == "accumulate") {
    return options.accumulate(std::stoll(rest));
  }
  if (kind == "sharded" || kind == "shared") {
    return options.shard_optimizer(true).share_weights(kind == "shared");
  }
  if (kind == "muon") {
    return options.shard_optimizer(rest == "sharded");
  }
  if (kind == "ours" || kind == "layers") {
    return options;
  }
  throw std::invalid_argument("no variant " + variant);
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
    WorkloadOptions options;
    options.channels_last = variant == "layers-channels-last";
    options.fused = variant == "layers-fused";
    workload_ = make_workload(model, options);
    trainer_.emplace(runtime_, workload_.module, *optimizer_of(variant, workload_.module),
                     options_of(variant, runtime_.size()));
  }

  void step() override {
    if (steps_++ == warm_up_steps && !trace_file_.empty()) {
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
  std::string trace_file_ = trace_file();
  std::optional<StepTrace> trace_;
  int steps_ = 0;
};

}  // namespace

std::unique_ptr<StepLoop> make_trainer_loop(const std::string& variant, const std::string& model,
                                            int argc, char** argv) {
  return std::make_unique<TrainerLoop>(variant, model, argc, argv);
}

}  // namespace lockstep::benchmarks
