// update [SCALE]: times one AdamW update of 14.7M parameters on one thread, ours and the peers in
// turn. The bound reads and writes the same arrays and computes next to nothing.
#include <ATen/ATen.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/optimizers.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "bare_kernels.h"
#include "one_thread_main.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t tensors = 14, tensor_numel = 1 << 20, numel = tensors * tensor_numel;
constexpr int warm_up = 3, repetitions = 15;

struct Contender {
  Series series;
  std::function<void()> refresh;  // fresh gradients
  std::function<void()> update;
};

class Flat {
 public:
  explicit Flat(c10::ScalarType wire) : rule_(AdamW(1e-3).rule(0)) {
    span_.gradient = at::zeros({numel}, wire);
    span_.master = at::randn({numel});
    amp::add_moments(span_, *rule_);
  }
  void refresh(double value) { span_.gradient.fill_(value); }
  void update() {
    rule_->apply(span_, &state_);
    ++state_.update;
  }

 private:
  std::shared_ptr<const amp::UpdateRule> rule_;
  amp::FlatSpan span_;
  amp::StepState state_;
};

class Listed {
 public:
  Listed() {
    for (int64_t i = 0; i < tensors; ++i) {
      parameters_.push_back(at::randn({tensor_numel}).requires_grad_());
      parameters_.back().mutable_grad() = at::zeros({tensor_numel});
    }
    optimizer_ =
        std::make_unique<torch::optim::AdamW>(parameters_, torch::optim::AdamWOptions(1e-3));
  }
  void refresh(double value) {
    for (at::Tensor& parameter : parameters_) {
      parameter.mutable_grad().fill_(value);
    }
  }
  void update() { optimizer_->step(); }

 private:
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

/// Reads and writes what the update must, and computes next to nothing.
class Traffic {
 public:
  explicit Traffic(c10::ScalarType wire) : gradient_(at::zeros({numel}, wire)) {
    for (at::Tensor& state : states_) {
      state = at::zeros({numel});
    }
  }
  void refresh(double value) { gradient_.fill_(value); }
  void update() {
    add_to_three(gradient_.scalar_type(), gradient_.data_ptr(), states_[0].data_ptr<float>(),
                 states_[1].data_ptr<float>(), states_[2].data_ptr<float>(), numel);
  }

 private:
  at::Tensor gradient_;
  std::array<at::Tensor, 3> states_;
};

template <typename Updated>
Contender contender(const char* variant, Updated& updated, const double& value) {
  return {Series("adamw", variant), [&updated, &value] { updated.refresh(value); },
          [&updated] { updated.update(); }};
}

void measure(double scale) {
  Flat fp32(c10::ScalarType::Float), fp16(c10::ScalarType::Half);
  Listed listed;
  Traffic traffic_fp32(c10::ScalarType::Float), traffic_fp16(c10::ScalarType::Half);
  double value = 1e-3;
  std::vector<Contender> contenders = {
      contender("ours-fp32", fp32, value), contender("torch::optim", listed, value),
      contender("bound-fp32", traffic_fp32, value), contender("ours-fp16", fp16, value),
      contender("bound-fp16", traffic_fp16, value)};
  const int runs = warm_up + std::max(3, static_cast<int>(repetitions * scale));
  for (int run = 0; run < runs; ++run) {
    value = 1e-3 * (1 + run % 7);
    for (Contender& each : contenders) {
      each.refresh();
      if (run < warm_up) {
        each.update();
        continue;
      }
      each.series.begin();
      each.update();
      each.series.end();
    }
  }
  for (Contender& each : contenders) {
    each.series.note("parameters", numel);
    each.series.write();
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::one_thread_main(argc, argv, lockstep::benchmarks::measure);
}
