#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

namespace torch::nn {
class Module;
}

namespace lockstep::benchmarks {

/// A reference model with its batch and loss. benchmarks/peers/models.py has the same in Python.
struct Workload {
  std::shared_ptr<torch::nn::Module> module;
  std::function<void()> next_batch;  // draws random data of the batch's shape
  std::function<at::Tensor()> loss;  // forward and cross-entropy on that batch
};

/// "lstm": language model, vocabulary 33278, 2 layers of 200 units, dropout 0.2, 35 x 20 tokens.
/// "gpt": 6 layers of 256 units, 8 heads, vocabulary 256, 8 x 128 tokens.
/// "resnet18": 16 images of 3 x 32 x 32, 100 classes.
/// "mlp": 16 layers of 1024 x 1024 on a single row: parameters, and hardly any activations;
/// "mlp-small" has layers of 16 x 16.
/// The weights depend on the global generator only. Throws Error for another name.
Workload make_workload(const std::string& name);

/// Elements of all parameters.
int64_t count_parameters(const torch::nn::Module& module);

}  // namespace lockstep::benchmarks
