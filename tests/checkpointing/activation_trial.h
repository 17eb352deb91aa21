#pragma once

#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/checkpoint_sequential.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// What one forward and backward of a module leave behind.
struct Trial {
  std::vector<at::Tensor> tensors;  // output, gradients of parameters and input, buffers
  at::Tensor rng_after_forward;
  at::Tensor rng_after_backward;
};

inline at::Tensor rng_state() {
  return at::detail::getDefaultCPUGenerator().get_state().clone();
}

template <class Module>
Trial run_trial(Module& module, const std::function<at::Tensor(const at::Tensor&)>& forward,
                const at::Tensor& input) {
  module->zero_grad();
  torch::manual_seed(7);
  at::Tensor x = input.detach().clone();
  if (input.requires_grad()) {
    x.requires_grad_();
  }
  Trial trial;
  at::Tensor y = forward(x);
  trial.rng_after_forward = rng_state();
  y.to(at::kFloat).pow(2).mean().backward();
  trial.rng_after_backward = rng_state();
  trial.tensors.push_back(y.detach());
  for (const at::Tensor& parameter : module->parameters()) {
    trial.tensors.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::zeros({0}));
  }
  if (x.requires_grad()) {
    trial.tensors.push_back(x.grad());
  }
  for (const at::Tensor& buffer : module->buffers()) {
    trial.tensors.push_back(buffer.clone());
  }
  return trial;
}

/// Bit for bit, the random streams included.
inline void expect_equal(const Trial& plain, const Trial& other, const std::string& what = "") {
  ASSERT_EQ(plain.tensors.size(), other.tensors.size()) << what;
  for (std::size_t i = 0; i < plain.tensors.size(); ++i) {
    EXPECT_TRUE(torch::equal(plain.tensors[i], other.tensors[i])) << what << ": tensor " << i;
  }
  EXPECT_TRUE(torch::equal(plain.rng_after_forward, other.rng_after_forward)) << what;
  EXPECT_TRUE(torch::equal(plain.rng_after_backward, other.rng_after_backward)) << what;
}

/// Buffers move in forward, so each run starts from a copy of the module.
template <class Module>
void expect_checkpoint_equals_plain(
    Module module, const at::Tensor& input,
    const std::function<at::Tensor(Module&, const at::Tensor&)>& plain,
    const std::function<at::Tensor(Module&, const at::Tensor&)>& checkpointed) {
  auto copy = [&] {
    return Module(std::dynamic_pointer_cast<typename Module::ContainedType>(module->clone()));
  };
  Module first = copy();
  Module second = copy();
  expect_equal(run_trial(
                   first, [&](const at::Tensor& x) { return plain(first, x); }, input),
               run_trial(
                   second, [&](const at::Tensor& x) { return checkpointed(second, x); }, input));
}

/// The message of the exception that f throws, or "" if it throws none.
template <class Exception, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::testing
