#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

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

struct WorkloadOptions {
  c10::Device device{c10::kCPU};
  bool channels_last = false;  // images and convolutions
  bool fused = false;          // "lstm" and "gpt" with the layers of amp/fused_layers.h
};

/// "lstm": language model, vocabulary 33278, 2 layers of 200 units, dropout 0.2, 35 x 20 tokens.
/// "gpt": 6 layers of 256 units, 8 heads, vocabulary 256, 8 x 128 tokens.
/// "gpt2": GPT-2 124M: 12 layers of 768 units, vocabulary 50257, head tied, 8 x 1024 tokens.
/// "bert": BERT-base with a head for two classes, dropout 0.1, 64 x 128 tokens.
/// "resnet18": 16 images of 3 x 32 x 32, 100 classes.
/// "resnet50": 256 images of 3 x 224 x 224, 1000 classes.
/// The last four also as "NAME-tiny", to check programs.
/// "mlp": 16 layers of 1024 x 1024 on a single row: parameters, and hardly any activations;
/// "mlp-small" has layers of 16 x 16.
/// "scales": 20,000 parameters of 8 elements.
/// The weights depend on the global generator only. Throws Error for another name.
Workload make_workload(const std::string& name, const WorkloadOptions& options = {});

/// Elements of all parameters.
int64_t count_parameters(const torch::nn::Module& module);

}  // namespace lockstep::benchmarks
