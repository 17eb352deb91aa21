#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "flat_tensors.h"
#include "models.h"
#include "same_report.h"

namespace lockstep::testing {

using namespace detail;

using Inputs = std::vector<at::Tensor>;

struct Calls {
  int apart = 0, captures = 0, launches = 0;
  std::function<bool()> refuses = [] { return false; };
};

/// A graph that keeps the work and runs it again at each launch.
class KeptWork final : public StepGraph {
 public:
  explicit KeptWork(Calls& calls) : calls_(calls) {}
  void run_apart(const std::function<void()>& work) override {
    ++calls_.apart;
    work();
  }
  void rehearse(const std::function<void()>&) override { capture({}); }
  void capture(const std::function<void()>& work) override {
    ++calls_.captures;
    TORCH_CHECK(!calls_.refuses(), "operation not permitted when stream is capturing");
    work_ = work;
  }
  void launch() override {
    ++calls_.launches;
    work_();
  }

 private:
  Calls& calls_;
  std::function<void()> work_;
};

inline TrainerOptions dynamic_half() {
  return TrainerOptions()
      .precision(
          Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(20)))
      .clip_grad_norm(0.5)
      .ema(0.9)
      .schedule(WarmupCosine(5, 100));
}

/// A model in host memory and its Trainer, which acts as on a device.
struct CapturedRun {
  CapturedRun(Runtime& runtime, const Communicator& devices, TrainerOptions options, bool graph,
              const OptimizerSpec& optimizer = AdamW(1e-2),
              HostActs acts = HostActs::one_window_late)
      : model(made()),
        trainer(std::make_unique<detail::TrainerImpl>(
            runtime, model, optimizer, options.cuda_graph(graph), acts,
            [this] { return std::make_unique<KeptWork>(calls); }, devices)) {}

  static std::shared_ptr<Mlp> made() {
    at::manual_seed(11);
    return std::make_shared<Mlp>();
  }
  StepReport step(const Inputs& inputs) {
    return trainer.step(inputs, [model = model](const Inputs& from) -> Loss {
      return model->loss(at::dropout(from[0], 0.2, true), from[1]) * from[2];
    });
  }
  at::Tensor masters() const {
    return flat(trainer.impl().storage.named(trainer.impl().storage.arena().whole_masters()));
  }

  Calls calls;
  std::shared_ptr<Mlp> model;
  Trainer trainer;
};

inline bool planted_at(int64_t step) {
  return step == 7 || step == 50 || step == 51 || step == 120;
}

inline Inputs batch(int64_t step, int64_t rows = 5, bool overflows = true) {
  const auto drawn = [](at::IntArrayRef sizes, int64_t seed) {
    return at::randn(sizes, at::detail::createCPUGenerator(static_cast<uint64_t>(seed)));
  };
  const bool planted = overflows && planted_at(step);
  const float factor = planted ? std::numeric_limits<float>::infinity() : 1.0F;
  return {drawn({rows, 4}, step), drawn({rows, 2}, 1'000'000 + step), at::full({}, factor)};
}

/// Masters after each step, and the reports.
struct Course {
  std::vector<at::Tensor> masters;
  std::vector<StepReport> reports;
};

inline Course run(CapturedRun& trained, int64_t steps,
                  const std::function<Inputs(int64_t)>& inputs) {
  Course course;
  at::manual_seed(5);
  for (int64_t step = 0; step < steps; ++step) {
    course.reports.push_back(trained.step(inputs(step)));
    course.masters.push_back(trained.masters());
  }
  return course;
}

inline void expect_same(const Course& found, const Course& expected) {
  for (size_t step = 0; step < expected.masters.size(); ++step) {
    ASSERT_TRUE(at::equal(found.masters[step], expected.masters[step])) << step;
    expect_same_report(found.reports[step], expected.reports[step], static_cast<int64_t>(step));
  }
}

}  // namespace lockstep::testing
