// A step through the C interface, and one through the Fortran module, beside the same step in C++,
// in one process on one thread:
//   c_step [SCALE]     SCALE shortens the run
// The model is small, so that what the interface costs can be seen.

#include <ATen/ATen.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/bindings/c/lockstep.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/trainer.h>
#include <mpi.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "one_thread_main.h"
#include "recorder.h"

#ifdef LOCKSTEP_BENCHMARK_FORTRAN
extern "C" {  // fortran_step.f90
void fortran_step_begin(int comm, const char* path, int length);
void fortran_step_run(int count, const float* x, const float* y);
void fortran_step_end();
}
#endif

namespace lockstep::benchmarks {
namespace {

constexpr int warm_up = 10;
constexpr int repetitions = 400;
constexpr int steps = 20;  // of a repetition

/// The file of a TorchScript model.
class ModelFile {
 public:
  ModelFile()
      : path_(std::filesystem::temp_directory_path() /
              ("c_step." + std::to_string(getpid()) + ".pt")) {
    torch::jit::Module module("m");
    module.register_parameter("a", at::randn({3, 8}).set_requires_grad(true), /*is_buffer=*/false);
    module.register_parameter("b", at::randn({8, 1}).set_requires_grad(true), /*is_buffer=*/false);
    module.define("def forward(self, x):\n    return torch.tanh(x @ self.a) @ self.b\n");
    module.save(path_);
  }
  ~ModelFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void require(int status) {
  LOCKSTEP_CHECK(status == LOCKSTEP_OK, lockstep_last_error());
}

template <typename Steps>
void repeat(Series& series, bool counts, const Steps& run) {
  if (counts) {
    series.begin();
  }
  run();
  if (counts) {
    series.end();
  }
}

void measure(double scale) {
  const ModelFile file;
  MPI_Comm comm = MPI_COMM_SELF;
  lockstep_runtime* c_runtime = nullptr;
  lockstep_model* c_model = nullptr;
  lockstep_trainer* c_trainer = nullptr;
  require(lockstep_runtime_create_on(&c_runtime, &comm, sizeof comm, "threads=1 device=cpu"));
  require(lockstep_model_load(&c_model, c_runtime, file.path().c_str()));
  require(lockstep_trainer_create(&c_trainer, c_runtime, c_model, "loss=mse optimizer.lr=1e-3"));
#ifdef LOCKSTEP_BENCHMARK_FORTRAN
  fortran_step_begin(MPI_Comm_c2f(comm), file.path().data(), static_cast<int>(file.path().size()));
#endif
  {
    Runtime runtime(comm, RuntimeOptions().threads(1).device(DeviceKind::cpu));
    torch::jit::Module module = torch::jit::load(file.path());
    module.train();
    Trainer trainer(runtime, module, AdamW(1e-3));
    const at::Tensor x = at::randn({16, 3}), y = x.sum(1, true);
    const lockstep_array input = {x.data_ptr(), LOCKSTEP_FLOAT32, 2, {16, 3}, {0}};
    const lockstep_array target = {y.data_ptr(), LOCKSTEP_FLOAT32, 2, {16, 1}, {0}};
    Series c("step", "c"), cpp("step", "c++"), fortran("step", "fortran");
    const int runs = warm_up + std::max(10, static_cast<int>(repetitions * scale));
    for (int run = 0; run < runs; ++run) {
      const bool counts = run >= warm_up;
      repeat(c, counts, [&] {
        for (int i = 0; i < steps; ++i) {
          require(lockstep_trainer_step(c_trainer, &input, 1, &target));
        }
      });
      repeat(cpp, counts, [&] {
        for (int i = 0; i < steps; ++i) {
          trainer.step([&] { return at::mse_loss(module.forward({x}).toTensor(), y); });
        }
      });
#ifdef LOCKSTEP_BENCHMARK_FORTRAN
      repeat(fortran, counts,
             [&] { fortran_step_run(steps, x.data_ptr<float>(), y.data_ptr<float>()); });
#endif
    }
    c.write();
    cpp.write();
#ifdef LOCKSTEP_BENCHMARK_FORTRAN
    fortran.write();
#endif
  }
#ifdef LOCKSTEP_BENCHMARK_FORTRAN
  fortran_step_end();
#endif
  require(lockstep_trainer_destroy(c_trainer));
  require(lockstep_model_destroy(c_model));
  require(lockstep_runtime_destroy(c_runtime));
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  const int code = lockstep::benchmarks::one_thread_main(argc, argv, lockstep::benchmarks::measure);
  MPI_Finalize();
  return code;
}
