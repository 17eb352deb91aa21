// A training program whose ranks end with different weights if it is given an argument: a bit flips
// on rank 1 after the last update. The test looks at its exit code.
#include <ATen/ATen.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/linear.h>

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    torch::nn::Linear model(4, 2);
    lockstep::Trainer trainer(runtime, model, lockstep::SGD(0.1));
    for (int i = 0; i < 3; ++i) {
      trainer.step([&]() -> lockstep::Loss { return model->forward(at::ones({3, 4})).sum(); });
    }
    if (argc > 1 && runtime.rank() == 1) {
      *static_cast<unsigned char*>(model->bias.detach().mutable_data_ptr()) ^= 0x10U;
    }
  });
}
