// The Trainer on a GPU against itself on the host.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/trainer.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

#include "error_of.h"
#include "runtime/cuda_runs.h"
#include "runtime/read_watch.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct OwnRuntime {
  explicit OwnRuntime(DeviceKind device)
      : runtime(Runtime::solo(RuntimeOptions().device(device))) {}
  Runtime runtime;
};

struct Trained : OwnRuntime, DeviceRun {
  Trained(DeviceKind device, const TrainerOptions& options)
      : OwnRuntime(device), DeviceRun(runtime, options) {}
};

TrainerOptions options_of(const Precision& precision) {
  return TrainerOptions().precision(precision).accumulate(2).clip_grad_norm(1.0).schedule(
      WarmupCosine(5, 100));
}

Precision half() {
  return Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(7));
}

Precision half_wire() {
  return Precision::O0().wire(at::kHalf).loss_scale(half().loss_scaler_options());
}

constexpr float kOverflow = std::numeric_limits<float>::infinity();

TEST(TrainerOnCuda, HasTheHostsLossCurveWithinABound) {
  for (const auto& [precision, bound] :
       {std::make_pair(Precision::O0(), 1e-4), std::make_pair(half(), 5e-2),
        std::make_pair(half_wire(), 1e-3)}) {
    Trained host(DeviceKind::cpu, options_of(precision));
    Trained device(DeviceKind::cuda, options_of(precision));
    for (int64_t step = 0; step < 60; ++step) {
      const double expected = host.step(step).loss();
      EXPECT_NEAR(device.step(step).loss(), expected, bound * std::fabs(expected)) << step;
    }
    EXPECT_EQ(device.trainer->updates(), host.trainer->updates());
  }
}

TEST(TrainerOnCuda, RecordedStepsHaveTheBitsOfPlainOnes) {
  const auto run = [](Trained& trained) {
    at::manual_seed(5);
    std::vector<StepReport> reports;
    for (int64_t step = 0; step < 60; ++step) {
      const int64_t rows = step % 3 == 0 ? 16 : 32;  // two records
      auto [x, y] = trained.trainer->to_device(rows_of(step, 0, rows));
      const at::Tensor factor = at::full({}, step == 20 ? kOverflow : 1.0F, x.options());
      reports.push_back(
          trained.trainer->step({x, y, factor}, [&](const std::vector<at::Tensor>& from) -> Loss {
            const at::Tensor dropped = at::dropout(from[0], 0.2, true);
            return trained.model->loss(dropped, from[1]) * from[2];
          }));
    }
    return reports;
  };
  for (const Precision& precision : {half(), half_wire()}) {
    const auto options = TrainerOptions().precision(precision).schedule(WarmupCosine(5, 100));
    Trained plain(DeviceKind::cuda, options);
    Trained recorded(DeviceKind::cuda, TrainerOptions(options).cuda_graph(true));
    const auto expected = run(plain);
    const auto found = run(recorded);
    EXPECT_TRUE(at::equal(recorded.masters(), plain.masters()));
    EXPECT_TRUE(expected[20].skipped());
    for (size_t step = 0; step < found.size(); ++step) {
      EXPECT_EQ(found[step].skipped(), expected[step].skipped()) << step;
      EXPECT_EQ(found[step].scale(), expected[step].scale()) << step;
      EXPECT_EQ(found[step].update(), expected[step].update()) << step;
    }
  }
}

TEST(TrainerOnCuda, AStepThatReadsTheDeviceCannotBeRecorded) {
  Trained trained(DeviceKind::cuda, TrainerOptions().cuda_graph(true));
  const auto [x, y] = trained.trainer->to_device(rows_of(0, 0, 32));
  const auto reading = [&](const std::vector<at::Tensor>& from) -> Loss {
    const at::Tensor loss = trained.model->loss(from[0], from[1]);
    return loss.item<float>() > 0 ? loss : loss * 2;
  };
  for (int step = 0; step < 3; ++step) {
    trained.trainer->step({x, y}, reading);
  }
  try {
    trained.trainer->step({x, y}, reading);
    FAIL() << "it was recorded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuda_graph: the step cannot be captured"));
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
  const auto dropping = [&](const std::vector<at::Tensor>& from) -> Loss {
    return trained.model->loss(at::dropout(from[0], 0.2, true), from[1]);
  };
  for (int step = 0; step < 5; ++step) {
    EXPECT_FALSE(trained.trainer->step({x, y}, dropping).skipped()) << step;
  }
}

TEST(TrainerOnCuda, ScalesAndSkipsAsOnTheHost) {
  Trained host(DeviceKind::cpu, options_of(half()));
  Trained device(DeviceKind::cuda, options_of(half()));
  std::vector<StepReport> expected;
  std::vector<StepReport> found;
  for (int64_t step = 0; step < 60; ++step) {
    const float factor = step == 8 || step == 30 || step == 33 ? kOverflow : 1.0F;
    expected.push_back(host.step(step, factor));
    found.push_back(device.step(step, factor));
  }
  for (size_t step = 0; step < found.size(); ++step) {
    EXPECT_EQ(found[step].skipped(), expected[step].skipped()) << step;
    EXPECT_EQ(found[step].scale(), expected[step].scale()) << step;
    EXPECT_EQ(found[step].update(), expected[step].update()) << step;
    EXPECT_NEAR(found[step].learning_rate(), expected[step].learning_rate(), 1e-9) << step;
  }
}

TEST(TrainerOnCuda, ASkippedUpdateMovesNothing) {
  Trained device(DeviceKind::cuda, options_of(half()));
  device.step(0);
  device.step(1);
  const at::Tensor before = device.masters();
  device.step(2, kOverflow);
  EXPECT_TRUE(device.step(3).skipped());
  EXPECT_TRUE(at::equal(device.masters(), before));
  EXPECT_EQ(device.trainer->updates(), 1);
}

/// The device is given work for longer than a step takes the host; a step that waited for it would
/// come back after it.
TEST(TrainerOnCuda, AStepNeverWaitsForTheDevice) {
  Trained device(DeviceKind::cuda, options_of(half()));
  for (int64_t step = 0; step < 8; ++step) {
    device.step(step);
  }
  const c10::Device gpu = device.runtime.device();
  const c10::impl::VirtualGuardImpl guard(gpu.type());
  guard.synchronizeDevice(gpu.index());
  at::Tensor work = at::ones({8192, 8192}, at::TensorOptions().device(gpu));
  for (int i = 0; i < 20; ++i) {
    work = at::mm(work, work);
  }
  c10::Event done(gpu.type());
  done.record(guard.getStream(gpu));
  const ReadWatch watch;
  device.step(8, kOverflow);
  device.step(9);
  EXPECT_EQ(watch.count(), 0);
  EXPECT_FALSE(done.query()) << "the step waited for the device";
}

TEST(TrainerOnCuda, GoesOnFromASnapshotBitForBit) {
  const testing::TemporaryFolder folder;
  for (const bool asynchronous : {true, false}) {
    const std::string run = folder.file(asynchronous ? "behind" : "at once");
    auto base = options_of(half());
    const auto options =
        base.ema(0.9).snapshots(SnapshotOptions().folder(run).asynchronous(asynchronous));
    const auto steps = [](Trained& trained, int64_t first, int64_t last) {
      for (int64_t step = first; step < last; ++step) {
        trained.step(step, step == 4 ? kOverflow : 1.0F);
      }
    };
    Trained unbroken(DeviceKind::cuda, options);
    steps(unbroken, 0, 8);
    unbroken.trainer->save();
    steps(unbroken, 8, 16);
    unbroken.trainer->finish_saving();
    Trained resumed(DeviceKind::cuda, options);
    EXPECT_EQ(resumed.trainer->resume().update, 3);
    steps(resumed, 8, 16);
    EXPECT_TRUE(at::equal(resumed.masters(), unbroken.masters()));
    EXPECT_EQ(resumed.trainer->loss_scale(), unbroken.trainer->loss_scale());
    EXPECT_EQ(resumed.trainer->updates(), unbroken.trainer->updates());
  }
}

TEST(TrainerOnCuda, MovesAModelToTheDeviceAndKeepsItsTensors) {
  Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
  const auto model = std::make_shared<Mlp>();
  model->to(at::kCPU);
  const at::Tensor held = model->first->weight;
  const at::Tensor before = held.detach().clone();
  Trainer trainer(runtime, model, SGD(0.1));
  EXPECT_EQ(held.device(), runtime.device());
  EXPECT_TRUE(at::equal(held.detach().cpu(), before));
  trainer.step([&] { return model->forward(testing::ones({3, 4})).square().mean(); });
  EXPECT_FALSE(at::equal(held.detach().cpu(), before));
}

TEST(DataParallelOnCuda, GivesTheGradientsOfBackward) {
  Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
  const auto model = std::make_shared<Mlp>();
  const auto [rows, targets] = testing::rows_of(1, 0, 8);
  const at::Tensor x = rows.to(runtime.device());
  const at::Tensor y = targets.to(runtime.device());
  model->loss(x, y).backward();
  const at::Tensor expected = model->first->weight.grad().clone();
  testing::clear_gradients(*model);
  DataParallel parallel(runtime.communicator(), model, DataParallelOptions().wire(at::kHalf));
  model->loss(x, y).backward();
  parallel.finish();
  EXPECT_TRUE(at::allclose(model->first->weight.grad(), expected, 1e-3, 1e-4));
}

TEST(TrainerOnCuda, TorchOptimizersTrainFp64ParametersAndFusedOnesRefuseThem) {
  const auto [rows, targets] = testing::rows_of(1, 0, 8);
  const at::Tensor inputs = rows.to(at::kDouble);
  const at::Tensor wanted = targets.to(at::kDouble);
  const auto trained = [&](DeviceKind kind) {
    Runtime runtime = Runtime::solo(RuntimeOptions().device(kind));
    const auto model = std::make_shared<Mlp>();
    model->to(at::kCPU, at::kDouble);
    {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : model->parameters()) {
        parameter.copy_(at::arange(parameter.numel(), at::kDouble).sin().view(parameter.sizes()));
      }
    }
    const TorchOptimizer sgd([](std::vector<at::Tensor> masters) {
      return std::make_unique<torch::optim::SGD>(std::move(masters), 0.1);
    });
    Trainer trainer(runtime, model, sgd,
                    TrainerOptions().accumulate(2).clip_grad_norm(0.5).ema(0.9));
    for (int step = 0; step < 6; ++step) {
      trainer.step([&] {
        const at::Tensor y = model->forward(trainer.to_device(inputs));
        return (y - trainer.to_device(wanted)).square().mean();
      });
    }
    EXPECT_EQ(trainer.updates(), 3);
    std::vector<at::Tensor> flats;
    for (const auto& list : {trainer.masters(), trainer.averaged()}) {
      for (const auto& entry : list) {
        EXPECT_EQ(entry.second.scalar_type(), at::kDouble);
        flats.push_back(entry.second.cpu().flatten());
      }
    }
    return at::cat(flats);
  };
  EXPECT_TRUE(at::allclose(trained(DeviceKind::cuda), trained(DeviceKind::cpu), 1e-12, 1e-14));
  Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
  const auto model = std::make_shared<Mlp>();
  model->to(at::kDouble);
  EXPECT_THAT(testing::error_of([&] { Trainer(runtime, model, SGD(0.1)); }),
              ::testing::HasSubstr("parameter first.weight is fp64"));
}

TEST(DataParallelOnCuda, SendsGradientsOfFp64ParametersAsTheyAre) {
  Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
  const auto model = std::make_shared<Mlp>();
  model->to(at::kDouble);
  const auto [rows, targets] = testing::rows_of(1, 0, 8);
  const at::Tensor x = rows.to(runtime.device(), at::kDouble);
  const at::Tensor y = targets.to(runtime.device(), at::kDouble);
  model->loss(x, y).backward();
  const at::Tensor expected = model->first->weight.grad().clone();
  testing::clear_gradients(*model);
  DataParallel parallel(runtime.communicator(), model, DataParallelOptions().wire(at::kHalf));
  {
    const auto no_sync = parallel.no_sync();
    model->loss(x, y).backward();
  }
  model->loss(x, y).backward();
  parallel.finish();
  EXPECT_TRUE(at::equal(model->first->weight.grad(), 2.0 * expected));
}

}  // namespace
}  // namespace lockstep
