// Trains 40 updates with snapshots in memory and one on the disk, after update 10, and prints where
// it began and how it ended. In the first attempt rank RANK kills itself after update 20. With
// `wait` it makes the file FOLDER/begin instead, and waits to be killed. FOLDER/killed and
// FOLDER/again have the seconds since the start of the machine at which it killed itself, and at
// which the first update of the next attempt was done.
//
//   memory_restart_program FOLDER RANK [wait]

#include <lockstep/lockstep.h>
#include <torch/nn.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

void write_time(const std::string& path) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream(path) << std::fixed << now.count() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    const std::string folder = argv[1];
    const bool first_attempt = std::string(std::getenv("LOCKSTEP_ATTEMPT")) == "0";
    const int dies = first_attempt ? std::atoi(argv[2]) : -1;
    torch::nn::Sequential model(torch::nn::Linear(16, 32), torch::nn::Dropout(0.2),
                                torch::nn::Tanh(), torch::nn::Linear(32, 4));
    lockstep::Trainer trainer(
        runtime, model, lockstep::AdamW(1e-2),
        lockstep::TrainerOptions().snapshots(lockstep::SnapshotOptions()
                                                 .folder(folder + "/run")
                                                 .memory_every(5)
                                                 .memory_folder(folder + "/memory")));
    const lockstep::ResumeReport resumed = trainer.resume();
    if (runtime.is_main()) {
      std::printf("began at update %lld\n", static_cast<long long>(resumed.update));
    }
    while (trainer.updates() < 40) {
      trainer.step([&] {
        const at::Tensor x = at::ones({8, 16}) * (trainer.updates() + 1 + runtime.rank());
        return model->forward(x).square().mean();
      });
      if (!first_attempt && runtime.is_main() && trainer.updates() == resumed.update + 1) {
        write_time(folder + "/again");
      }
      if (trainer.updates() == 10) {
        trainer.save();
      }
      if (trainer.updates() == 20) {
        trainer.finish_saving();
        if (runtime.rank() == dies && argc > 3) {
          std::ofstream(folder + "/begin") << std::endl;
          for (;;) {
            pause();
          }
        }
        if (runtime.rank() == dies) {
          write_time(folder + "/killed");
          std::raise(SIGKILL);
        }
      }
    }
    if (runtime.is_main()) {
      double sum = 0.0;
      for (const auto& [name, tensor] : trainer.masters()) {
        sum += tensor.to(at::kDouble).sum().item<double>();
      }
      std::printf("ended with %a\n", sum);
    }
  });
}
