#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <mpi.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include "step_loop.h"

namespace lockstep::benchmarks {
namespace {

/// MPI for the life of a loop.
class Ranks {
 public:
  Ranks() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~Ranks() { MPI_Finalize(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void average(const at::Tensor& gradient) const {
    MPI_Allreduce(MPI_IN_PLACE, gradient.data_ptr(), static_cast<int>(gradient.numel()), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
    gradient.div_(size_);
  }

 private:
  int size_ = 1;
};

class PlainLoop : public StepLoop {
 public:
  explicit PlainLoop(const std::string& model) {
    workload_ = make_workload(model);
    optimizer_ = std::make_unique<torch::optim::AdamW>(workload_.module->parameters(),
                                                       torch::optim::AdamWOptions(learning_rate));
  }

  void step() override {
    optimizer_->zero_grad();
    workload_.loss().backward();
    average_gradients();
    optimizer_->step();
  }

 protected:
  virtual void average_gradients() {}

 private:
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

class MpiLoop final : public PlainLoop {
 public:
  using PlainLoop::PlainLoop;

 protected:
  void average_gradients() override {
    for (const at::Tensor& parameter : workload_.module->parameters()) {
      ranks_.average(parameter.grad());
    }
  }

 private:
  Ranks ranks_;
};

class FusedLoop : public StepLoop {
 public:
  explicit FusedLoop(const std::string& model, bool channels_last = false) {
    workload_ = make_workload(model, {at::kCPU, channels_last});
    parameters_ = workload_.module->parameters();
    gradient_ = at::zeros({count_parameters(*workload_.module)});
    int64_t offset = 0;
    for (at::Tensor& parameter : parameters_) {
      parameter.mutable_grad() =
          gradient_.as_strided(parameter.sizes(), parameter.strides(), offset);
      offset += parameter.numel();
      gradients_.push_back(parameter.grad());
      first_.push_back(at::zeros_like(parameter));
      second_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
  }

  void step() override {
    gradient_.zero_();
    workload_.loss().backward();
    average(gradient_);
    const at::NoGradGuard no_grad;
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, gradients_, first_, second_, {}, steps_, learning_rate,
                      /*beta1=*/0.9, /*beta2=*/0.999, /*weight_decay=*/1e-2, /*eps=*/1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
  }

 protected:
  virtual void average(const at::Tensor& gradient) {}

 private:
  std::vector<at::Tensor> parameters_, gradients_, first_, second_, steps_;
  at::Tensor gradient_;
};

class MpiFusedLoop final : public FusedLoop {
 public:
  using FusedLoop::FusedLoop;

 protected:
  void average(const at::Tensor& gradient) override { ranks_.average(gradient); }

 private:
  Ranks ranks_;
};

}  // namespace

std::unique_ptr<StepLoop> make_libtorch_loop(const std::string& variant, const std::string& model) {
  at::set_num_threads(1);
  if (variant == "libtorch-mpi") {
    return std::make_unique<MpiLoop>(model);
  }
  if (variant == "libtorch-mpi-fused" || variant == "libtorch-mpi-fused-channels-last") {
    return std::make_unique<MpiFusedLoop>(model, variant != "libtorch-mpi-fused");
  }
  if (variant == "libtorch-fused") {
    return std::make_unique<FusedLoop>(model);
  }
  return std::make_unique<PlainLoop>(model);
}

}  // namespace lockstep::benchmarks
