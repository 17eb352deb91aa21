#pragma once
// Faults of one rank while the others wait for it in a collective of the closure. Their names are
// waiting-KIND-PLACE-CALL. KIND: exception, memory. PLACE: closure, hook, loader, backward. CALL:
// batchnorm (layers of convert_sync_batchnorm), split, communicator, control (a gather of features
// on that communicator of the Runtime).

#include <ATen/ATen.h>
#include <lockstep/lockstep.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::testing {

class WaitingPeers {
 public:
  /// `begins`: called before the fault, on the rank that has it. Unset on the other ranks.
  WaitingPeers(const std::string& fault, std::function<void()> begins)
      : begins_(std::move(begins)), is_on_(fault.rfind("waiting-", 0) == 0), parts_(fault + "-") {}

  bool is_on() const { return is_on_; }

  /// Puts a collective into the model or into values_of().
  void add_collective(Runtime& runtime, torch::nn::Sequential& model) {
    if (has("batchnorm")) {
      model->push_back(torch::nn::BatchNorm1d(2));
      convert_sync_batchnorm(model, runtime.communicator());
    } else {
      ranks_ = has("split")          ? runtime.communicator().split(0)
               : has("communicator") ? runtime.communicator()
                                     : runtime.control();
    }
  }

  void fail_in(const std::string& place) const {
    if (is_on_ && begins_ && has(place)) {
      begins_();
      fail();
    }
  }

  /// What the loss is computed of. Its backward fails before that of the collective.
  at::Tensor values_of(at::Tensor output, bool fails) const {
    if (ranks_) {
      output = output - all_gather_with_gradients(*ranks_, output).mean(0);
    }
    if (fails && begins_ && has("hook")) {
      output.register_hook([this](const at::Tensor&) { fail_in("hook"); });
    }
    return fails && begins_ && has("backward") ? FailsInBackward::apply(output, this) : output;
  }

 private:
  struct FailsInBackward : torch::autograd::Function<FailsInBackward> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                              const WaitingPeers* peers) {
      context->saved_data["peers"] = reinterpret_cast<int64_t>(peers);
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      reinterpret_cast<const WaitingPeers*>(context->saved_data["peers"].toInt())
          ->fail_in("backward");
      return {gradients[0], at::Tensor()};
    }
  };

  bool has(const std::string& part) const { return parts_.find("-" + part + "-") != parts_.npos; }

  void fail() const {
    if (has("memory")) {
      at::empty({int64_t{1} << 46});
    }
    throw Error("sample 17 is damaged", ExitCode::data);
  }

  std::function<void()> begins_;
  bool is_on_;
  std::string parts_;
  std::optional<Communicator> ranks_;
};

}  // namespace lockstep::testing
