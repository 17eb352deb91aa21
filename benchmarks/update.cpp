// update [SCALE]: times one AdamW update of 14.7M parameters on one thread, ours and the peers in
// turn. The bound is a copy that moves as many bytes as the update must.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lockstep/amp/optimizers.h>
#include <torch/optim/adamw.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <vector>

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
  explicit Flat(c10::ScalarType wire)
      : rule_(AdamW(1e-3).rule(0)), span_{at::zeros({numel}, wire), at::randn({numel}), {}, {}} {
    for (int i = 0; i < rule_->moments(); ++i) {
      span_.moments.push_back(at::zeros({numel}));
    }
  }
  void refresh(double value) { span_.gradient.fill_(value); }
  void update() {
    rule_->apply(span_, &state_);
    ++state_.update;
  }
  /// Gradient, master and moments are read; master and moments are written.
  int64_t bytes() const {
    return numel * (static_cast<int64_t>(span_.gradient.element_size()) + 6 * 4);
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

class Copy {
 public:
  explicit Copy(int64_t bytes_moved) : from_(bytes_moved / 2, 'a'), to_(bytes_moved / 2, 'b') {}
  void refresh(double value) { from_[0] = static_cast<char>(value); }
  void update() { std::memcpy(to_.data(), from_.data(), from_.size()); }

 private:
  std::vector<char> from_, to_;
};

template <typename Updated>
Contender contender(const char* variant, Updated& updated, const double& value) {
  return {Series("adamw", variant), [&updated, &value] { updated.refresh(value); },
          [&updated] { updated.update(); }};
}

void measure(double scale) {
  Flat fp32(c10::ScalarType::Float), fp16(c10::ScalarType::Half);
  Listed listed;
  Copy copy_fp32(fp32.bytes()), copy_fp16(fp16.bytes());
  double value = 1e-3;
  std::vector<Contender> contenders = {
      contender("ours-fp32", fp32, value), contender("torch::optim", listed, value),
      contender("bound-fp32", copy_fp32, value), contender("ours-fp16", fp16, value),
      contender("bound-fp16", copy_fp16, value)};
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
  at::set_num_threads(1);
  try {
    lockstep::benchmarks::measure(argc > 1 ? std::stod(argv[1]) : 1.0);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
