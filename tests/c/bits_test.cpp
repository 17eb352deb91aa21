// What is trained through the C interface has the bits of what C++ trains.
#include <gmock/gmock.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/bindings/c/calls/handles.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/exported_module.h>
#include <mpi.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "runtime/flat_tensors.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

std::string model_file(const std::string& name) {
  return std::string(LOCKSTEP_C_MODELS) + "/" + name;
}

/// The handles of a C program on all ranks.
class CProgram {
 public:
  CProgram(const std::string& model, const std::string& options,
           const char* model_options = nullptr) {
    MPI_Comm all = MPI_COMM_WORLD;
    expect_ok(lockstep_runtime_create_on(&runtime, &all, sizeof all, "device=cpu"));
    expect_ok(
        lockstep_model_load_with(&this->model, runtime, model_file(model).c_str(), model_options));
    expect_ok(lockstep_trainer_create(&trainer, runtime, this->model, options.c_str()));
  }
  /// In the order in which a careless program would do it.
  ~CProgram() {
    expect_ok(lockstep_runtime_destroy(runtime));
    expect_ok(lockstep_model_destroy(model));
    expect_ok(lockstep_trainer_destroy(trainer));
  }
  CProgram(const CProgram&) = delete;
  CProgram& operator=(const CProgram&) = delete;

  static void expect_ok(int status) { EXPECT_EQ(status, LOCKSTEP_OK) << lockstep_last_error(); }
  at::Tensor masters() const { return flat(trainer->trainer->masters()).clone(); }

  lockstep_runtime* runtime = nullptr;
  lockstep_model* model = nullptr;
  lockstep_trainer* trainer = nullptr;
};

lockstep_array array_of(const at::Tensor& tensor) {
  lockstep_array array = {tensor.data_ptr(), 0, static_cast<int>(tensor.dim()), {0}, {0}};
  array.dtype = tensor.scalar_type() == at::kFloat  ? LOCKSTEP_FLOAT32
                : tensor.scalar_type() == at::kLong ? LOCKSTEP_INT64
                                                    : LOCKSTEP_FLOAT64;
  for (int i = 0; i < array.rank; ++i) {
    array.shape[i] = tensor.size(i);
    array.strides[i] = tensor.stride(i);
  }
  return array;
}

at::Tensor as_fortran(const at::Tensor& tensor) {
  return tensor.t().contiguous().t();
}

struct Batches {
  std::vector<at::Tensor> x, y;
  explicit Batches(bool column_major = false) {
    for (int step = 0; step < 6; ++step) {
      const at::Tensor points = at::randn({6, 3});
      const at::Tensor sums = points.sum(1, true);
      x.push_back(column_major ? as_fortran(points) : points);
      y.push_back(column_major ? as_fortran(sums) : sums);
    }
  }
};

const char* const kOptions =
    "loss=mse precision=O2 precision.compute=bf16 optimizer=AdamW optimizer.lr=0.01 "
    "optimizer.weight_decay=0.1 accumulate=2 clip_grad_norm=0.5 schedule=WarmupCosine(2,50)";

/// The same in C++, with `forward` of the module that `model` views.
template <typename Forward>
at::Tensor trained_in_cpp(const Batches& batches, const Model& model, const Forward& forward,
                          std::vector<double>& losses) {
  Trainer trainer(runtime(), model, AdamW(0.01).weight_decay(0.1),
                  TrainerOptions()
                      .precision(Precision::O2(at::kBFloat16))
                      .accumulate(2)
                      .clip_grad_norm(0.5)
                      .schedule(WarmupCosine(2, 50)));
  for (size_t i = 0; i < batches.x.size(); ++i) {
    losses.push_back(
        trainer.step([&] { return at::mse_loss(forward(batches.x[i]), batches.y[i]); }).loss());
  }
  return flat(trainer.masters()).clone();
}

template <typename Forward>
void expect_the_bits_of_cpp(const Batches& batches, const std::string& name, const Model& model,
                            const Forward& forward) {
  std::vector<double> expected;
  const at::Tensor masters = trained_in_cpp(batches, model, forward, expected);
  const CProgram program(name, kOptions);
  std::vector<double> losses;
  for (size_t i = 0; i < batches.x.size(); ++i) {
    const lockstep_array x = array_of(batches.x[i]), y = array_of(batches.y[i]);
    CProgram::expect_ok(lockstep_trainer_step(program.trainer, &x, 1, &y));
    lockstep_report report;
    CProgram::expect_ok(lockstep_trainer_report(program.trainer, &report));
    EXPECT_EQ(report.closes_update, i % 2);
    losses.push_back(report.loss);
  }
  EXPECT_EQ(losses, expected);
  EXPECT_TRUE(at::equal(program.masters(), masters));
}

void expect_the_bits_of_the_exported_module(const Batches& batches) {
  ExportedModule model(model_file("net.pt2"));
  expect_the_bits_of_cpp(batches, "net.pt2", model,
                         [&](const at::Tensor& x) { return model->forward(x); });
}

TEST(CBits, AStepHasTheBitsOfCpp) {
  expect_the_bits_of_the_exported_module(Batches());
}

TEST(CBits, ColumnMajorArraysHaveTheBitsOfCppWithTheSameStrides) {
  expect_the_bits_of_the_exported_module(Batches(/*column_major=*/true));
}

TEST(CBits, ATorchScriptModelHasTheBitsOfCpp) {
  torch::jit::Module model = torch::jit::load(model_file("net.pt"));
  model.train();
  expect_the_bits_of_cpp(Batches(), "net.pt", model,
                         [&](const at::Tensor& x) { return model.forward({x}).toTensor(); });
}

TEST(CBits, InferenceWritesIntoArraysOfEachLayoutAndDtype) {
  const CProgram program("classes.pt2", "loss=cross_entropy");
  ExportedModule model(model_file("classes.pt2"));
  model->eval();
  const at::Tensor x = at::randn({5, 3}), expected = model->forward(x).detach();
  const at::Tensor rows = at::empty({5, 4}), columns = as_fortran(at::empty({5, 4}, at::kDouble));
  const lockstep_array input = array_of(x), output = array_of(rows), other = array_of(columns);
  CProgram::expect_ok(lockstep_model_infer(program.model, &input, 1, &output, 1));
  CProgram::expect_ok(lockstep_trainer_infer(program.trainer, &input, 1, &other, 1));
  EXPECT_TRUE(at::equal(rows, expected));
  EXPECT_TRUE(at::equal(columns, expected.to(at::kDouble)));

  const at::Tensor labels = at::randint(0, 4, {5}, at::kLong);
  const lockstep_array target = array_of(labels);
  double loss = 0.0;
  CProgram::expect_ok(lockstep_trainer_evaluate(program.trainer, &input, 1, &target, &loss));
  EXPECT_EQ(loss, at::cross_entropy_loss(expected, labels).item<double>());
  CProgram::expect_ok(lockstep_trainer_step(program.trainer, &input, 1, &target));
}

TEST(CBits, AModelMayReturnItsLossOrSeveralTensors) {
  const at::Tensor x = at::randn({6, 3}), y = x.sum(1, true);
  const std::vector<lockstep_array> both = {array_of(x), array_of(y)};
  {
    const CProgram program("loss.pt2", "loss=output");
    CProgram::expect_ok(lockstep_trainer_step(program.trainer, both.data(), 2, nullptr));
    EXPECT_EQ(lockstep_trainer_step(program.trainer, both.data(), 2, &both[1]), LOCKSTEP_DATA);
    EXPECT_THAT(lockstep_last_error(), HasSubstr("loss=output"));
  }
  const CProgram program("twice.pt2", "loss=mse");
  EXPECT_EQ(lockstep_trainer_step(program.trainer, both.data(), 1, &both[1]), LOCKSTEP_DATA);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("returns 2 tensors"));
  const at::Tensor once = at::empty({6, 1}), twice = at::empty({6, 1});
  const std::vector<lockstep_array> outputs = {array_of(once), array_of(twice)};
  CProgram::expect_ok(lockstep_model_infer(program.model, both.data(), 1, outputs.data(), 2));
  EXPECT_TRUE(at::equal(2 * once, twice));
  EXPECT_EQ(lockstep_model_infer(program.model, both.data(), 1, outputs.data(), 1), LOCKSTEP_DATA);
}

TEST(CBits, AModelHasTheOptionsOfItsText) {
  const at::Tensor x = at::randn({6, 3}), y = x.sum(1, true);
  const lockstep_array input = array_of(x), target = array_of(y);
  const CProgram unstated("decomposed.pt2", "loss=mse");
  EXPECT_EQ(lockstep_trainer_step(unstated.trainer, &input, 1, &target), LOCKSTEP_USAGE);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("in C and Fortran \"without_no_grad=true\""));
  const CProgram stated("decomposed.pt2", "loss=mse", "without_no_grad=true operators=a,b");
  CProgram::expect_ok(lockstep_trainer_step(stated.trainer, &input, 1, &target));
  lockstep_model* other = nullptr;
  EXPECT_EQ(lockstep_model_load_with(&other, stated.runtime, model_file("net.pt2").c_str(),
                                     "without_nograd=true"),
            LOCKSTEP_USAGE);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("without_no_grad"));
  EXPECT_EQ(lockstep_model_load_with(&other, stated.runtime, model_file("net.pt").c_str(),
                                     "without_no_grad=true"),
            LOCKSTEP_USAGE);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("TorchScript"));
  EXPECT_EQ(other, nullptr);
}

TEST(CBits, ABufferDrawsTheBatchesOfCpp) {
  const std::vector<at::Tensor> like = {at::zeros({3}), at::zeros({1})};
  // A NaN loss before the first update is an Error, for which the closure runs twice.
  const auto samples = [](int step) -> std::vector<at::Tensor> {
    return {at::full({3}, step == 0 ? NAN : 0.05 * step), at::full({1}, 0.15 * step)};
  };
  ExportedModule model(model_file("net.pt2"));
  at::Tensor expected;
  std::vector<int> expected_codes;
  {
    Trainer trainer(runtime(), model, SGD(0.1));
    SampleBuffer buffer(runtime(), like, SampleBufferOptions().capacity(8).batch_size(4));
    for (int step = 0; step < 20; ++step) {
      buffer.push(samples(step));
      if (buffer.ready()) {
        const auto batch = buffer.batch();
        try {
          trainer.step([&] { return at::mse_loss(model->forward(batch[0]), batch[1]); });
          expected_codes.push_back(LOCKSTEP_OK);
        } catch (const Error& error) {
          expected_codes.push_back(static_cast<int>(error.code()));
        }
      }
    }
    expected = flat(trainer.masters()).clone();
  }
  const CProgram program("net.pt2", "loss=mse optimizer=SGD optimizer.lr=0.1");
  const auto arrays = [](const std::vector<at::Tensor>& tensors) {
    return std::vector<lockstep_array>{array_of(tensors[0]), array_of(tensors[1])};
  };
  lockstep_buffer* buffer = nullptr;
  EXPECT_EQ(lockstep_buffer_size(buffer), -1);
  CProgram::expect_ok(lockstep_buffer_create(&buffer, program.trainer, "samples",
                                             arrays(like).data(), 2,
                                             "policy=ring capacity=8 batch_size=4"));
  EXPECT_EQ(lockstep_trainer_step_from(program.trainer, buffer), LOCKSTEP_DATA);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("needs 4 samples, the buffer has 0"));
  std::vector<int> codes;
  for (int step = 0; step < 20; ++step) {
    const auto tensors = samples(step);
    CProgram::expect_ok(lockstep_buffer_push(buffer, arrays(tensors).data(), 2));
    EXPECT_EQ(lockstep_buffer_size(buffer), std::min(step + 1, 8));
    if (step >= 3) {
      codes.push_back(lockstep_trainer_step_from(program.trainer, buffer));
    }
  }
  EXPECT_EQ(codes, expected_codes);
  EXPECT_EQ(codes.front(), LOCKSTEP_NON_FINITE);
  EXPECT_EQ(codes.back(), LOCKSTEP_OK);
  EXPECT_TRUE(at::equal(program.masters(), expected));
  EXPECT_EQ(lockstep_buffer_push(buffer, arrays(like).data(), 1), LOCKSTEP_DATA);
  CProgram::expect_ok(lockstep_buffer_destroy(buffer));  // the trainer keeps it
  EXPECT_EQ(lockstep_buffer_create(&buffer, program.trainer, "few", arrays(like).data(), 1, ""),
            LOCKSTEP_USAGE);
  EXPECT_EQ(
      lockstep_buffer_create(&buffer, program.trainer, "odd", arrays(like).data(), 2, "polcy=ring"),
      LOCKSTEP_USAGE);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("\"policy\""));
}

TEST(CBits, EachFailureHasItsCode) {
  const CProgram program("net.pt2", "loss=mse");
  lockstep_runtime* other = nullptr;
  MPI_Comm all = MPI_COMM_WORLD;
  EXPECT_EQ(lockstep_runtime_create_on(&other, &all, sizeof all, "device=cuda"),
            LOCKSTEP_ENVIRONMENT);
  const at::Tensor x = at::full({6, 3}, NAN), y = at::zeros({6, 1});
  const lockstep_array nan = array_of(x), target = array_of(y);
  EXPECT_EQ(lockstep_trainer_step(program.trainer, &nan, 1, &target), LOCKSTEP_NON_FINITE);
  EXPECT_EQ(lockstep_trainer_load_weights(program.trainer, "/nowhere"), LOCKSTEP_SNAPSHOT);
  EXPECT_EQ(lockstep_trainer_save(program.trainer), LOCKSTEP_USAGE);
  double number = 0.0;
  const lockstep_array state = {&number, LOCKSTEP_FLOAT64, 0, {0}, {0}};
  EXPECT_EQ(lockstep_trainer_state(program.trainer, "", &state), LOCKSTEP_USAGE);
  EXPECT_EQ(lockstep_trainer_set_learning_rate(program.trainer, -1.0), LOCKSTEP_USAGE);
  EXPECT_EQ(lockstep_trainer_step_without_data(program.trainer), LOCKSTEP_USAGE);
}

}  // namespace
}  // namespace lockstep
