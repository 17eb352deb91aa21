// One update of a model through the umbrella header, with nothing but what was installed.
#include <lockstep/lockstep.h>
#include <torch/nn/modules/linear.h>

#include <iostream>

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [](lockstep::Runtime& runtime) {
    torch::nn::Linear model(4, 1);
    lockstep::Trainer trainer(runtime, model, lockstep::AdamW(1e-2));
    const auto before = model->weight.detach().clone();
    const auto report = trainer.step([&] { return model(at::ones({8, 4})).mean(); });
    LOCKSTEP_CHECK(report.closes_update() && !at::equal(before, model->weight),
                   "the update did not move the weights");
    std::cout << "one update on " << runtime.size() << " rank\n";
  });
}
