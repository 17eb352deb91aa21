// A program that ends with the exception of one rank while its peers wait for it in a collective.
// The test looks at the exit code and at the text on every rank. Arguments: where it is thrown
// (every_rank: by all of them in the closure), and a folder, in which each rank says that it has
// printed its text: mpirun kills the others as soon as one ends.
#include <ATen/ATen.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  const std::string place = argv[1];
  const std::filesystem::path folder = argv[2];
  int rank = 0;
  int ranks = 1;
  const int code = lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    rank = runtime.rank();
    ranks = runtime.size();
    torch::nn::Sequential model(torch::nn::Linear(4, 2), torch::nn::BatchNorm1d(2));
    model->to(runtime.device());
    lockstep::convert_sync_batchnorm(model, runtime.communicator());
    lockstep::Trainer trainer(runtime, model, lockstep::SGD(0.1));
    const auto fail = [&](const char* here, int step) {
      const bool here_too = place == "every_rank" && here == std::string("closure");
      if (step == 2 && (here_too || (place == here && runtime.rank() == runtime.size() - 1))) {
        throw lockstep::Error("sample 17 is damaged", lockstep::ExitCode::data);
      }
    };
    const lockstep::Communicator pairs = runtime.communicator().split(0, runtime.rank());
    for (int step = 0; step < 4; ++step) {
      fail("loader", step);  // the others are in the closure
      trainer.step([&]() -> lockstep::Loss {
        fail("closure", step);
        return model->forward(at::randn({3, 4}).to(runtime.device())).square().sum();
      });
      fail("between", step);
      runtime.control().barrier().wait();
      fail("split", step);  // the communicator is destroyed before run() has the exception
      pairs.barrier().wait();
    }
  });
  std::ofstream(folder / std::to_string(rank)).flush();
  for (int each = 0; each < ranks; ++each) {
    while (!std::filesystem::exists(folder / std::to_string(each))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return code;
}
