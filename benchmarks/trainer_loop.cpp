#include <lockstep/runtime/trainer.h>

#include <optional>

#include "step_loop.h"

namespace lockstep::benchmarks {
namespace {

class TrainerLoop final : public StepLoop {
 public:
  TrainerLoop(c10::ScalarType wire, const std::string& model, int argc, char** argv)
      : runtime_(argc, argv, RuntimeOptions().threads(1)) {
    workload_ = make_workload(model);
    trainer_.emplace(runtime_, workload_.module, AdamW(learning_rate),
                     TrainerOptions().precision(Precision::O0().wire(wire)));
  }

  void step() override {
    trainer_->step([this] { return Loss(workload_.loss()); });
  }

 private:
  Runtime runtime_;
  std::optional<Trainer> trainer_;
};

}  // namespace

std::unique_ptr<StepLoop> make_trainer_loop(const std::string& variant, const std::string& model,
                                            int argc, char** argv) {
  const auto wire = variant == "ours-fp16" ? c10::ScalarType::Half : c10::ScalarType::Float;
  return std::make_unique<TrainerLoop>(wire, model, argc, argv);
}

}  // namespace lockstep::benchmarks
