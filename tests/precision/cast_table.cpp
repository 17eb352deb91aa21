// What is computed and stored in which dtype, found out by running it, as Markdown:
//   cast_table
// The tables in docs/precision.md are this program's output; document.py compares them.

#include <ATen/ATen.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <iostream>

namespace {

using at::Tensor;
using lockstep::Precision;

const char* short_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return "fp16";
    case at::kBFloat16:
      return "bf16";
    case at::kFloat:
      return "fp32";
    case at::kLong:
      return "int64";
    case at::kDouble:
      return "fp64";
    case at::kFloat8_e4m3fn:
      return "fp8";
    default:
      return c10::toString(dtype);
  }
}

struct Operator {
  const char* name;
  std::function<Tensor(const Tensor&)> run;  // of a 4 x 4 input
};

std::vector<Operator> operators() {
  static const Tensor weight = at::eye(4).requires_grad_(true);
  static const Tensor kept = at::eye(4).requires_grad_(true);
  lockstep::amp::compute_in_fp32(kept);
  static const Tensor ids = at::arange(4, at::kLong);
  const auto image = [](const Tensor& x) { return x.view({1, 4, 2, 2}); };
  const auto heads = [](const Tensor& x) { return x.view({1, 1, 4, 4}); };
  return {
      {"linear", [](const Tensor& x) { return at::linear(x, weight); }},
      {"linear, weight named by keep_fp32", [](const Tensor& x) { return at::linear(x, kept); }},
      {"matmul, mm, bmm", [](const Tensor& x) { return at::matmul(x, x); }},
      {"conv2d",
       [=](const Tensor& x) {
         return at::conv2d(image(x), weight.view({4, 4, 1, 1}));
       }},
      {"scaled_dot_product_attention",
       [=](const Tensor& x) {
         return at::scaled_dot_product_attention(heads(x), heads(x), heads(x));
       }},
      {"relu", [](const Tensor& x) { return at::relu(x); }},
      {"gelu", [](const Tensor& x) { return at::gelu(x); }},
      {"exp", [](const Tensor& x) { return at::exp(x); }},
      {"pow", [](const Tensor& x) { return at::pow(x, 2); }},
      {"softmax", [](const Tensor& x) { return at::softmax(x, -1); }},
      {"log_softmax", [](const Tensor& x) { return at::log_softmax(x, -1); }},
      {"sum", [](const Tensor& x) { return x.sum(); }},
      {"mean", [](const Tensor& x) { return x.mean(); }},
      {"norm", [](const Tensor& x) { return x.norm(); }},
      {"cumsum", [](const Tensor& x) { return x.cumsum(0); }},
      {"layer_norm, fp32 weight",
       [](const Tensor& x) { return at::layer_norm(x, {4}, at::ones({4}), at::zeros({4})); }},
      {"group_norm, fp32 weight",
       [=](const Tensor& x) { return at::group_norm(image(x), 2, at::ones({4}), at::zeros({4})); }},
      {"batch_norm, fp32 weight",
       [](const Tensor& x) {
         return at::batch_norm(x, at::ones({4}), at::zeros({4}), at::zeros({4}), at::ones({4}),
                               /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
       }},
      {"mse_loss", [](const Tensor& x) { return at::mse_loss(x, at::zeros_like(x)); }},
      {"cross_entropy", [](const Tensor& x) { return at::cross_entropy_loss(x, ids); }},
      {"embedding, fp32 table", [](const Tensor&) { return at::embedding(weight, ids); }},
      {"add of input and fp32",
       [](const Tensor& x) {
         return x + at::ones({4, 4});
       }},
      {"cat of input and fp32",
       [](const Tensor& x) {
         return at::cat({x, at::ones({4, 4})});
       }},
  };
}

void print_operators() {
  std::cout << "| operator | fp16, fp32 input | fp16, fp16 input | bf16, fp32 input | bf16, bf16 "
               "input |\n|---|---|---|---|---|\n";
  for (const Operator& op : operators()) {
    std::cout << "| " << op.name;
    for (const auto compute : {at::kHalf, at::kBFloat16}) {
      for (const auto input : {at::kFloat, compute}) {
        const lockstep::amp::Autocast region(at::kCPU, compute);
        std::cout << " | " << short_name(op.run(at::ones({4, 4}, input)).scalar_type());
      }
    }
    std::cout << " |\n";
  }
}

struct Layers : torch::nn::Module {
  Layers() {
    register_module("linear", torch::nn::Linear(4, 4));
    register_module("wo", torch::nn::Linear(4, 4));
    register_module("embedding", torch::nn::Embedding(4, 4));
    register_module("batch_norm", torch::nn::BatchNorm1d(4));
    register_module("layer_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    register_parameter("frozen_fp64", torch::zeros({4}, torch::kDouble), /*requires_grad=*/false);
    register_parameter("frozen_fp8", torch::zeros({4}).to(torch::kFloat8_e4m3fn), false);
    register_buffer("average", torch::zeros({4}));
    register_buffer("bf16_queue", torch::zeros({4}, torch::kBFloat16));
  }
};

void print_storage() {
  Layers layers;
  const lockstep::Model model(layers);
  const std::vector<std::pair<const char*, Precision>> levels = {
      {"O0", Precision::O0()},
      {"O1 fp16", Precision::O1()},
      {"O2 fp16", Precision::O2()},
      {"O2 bf16", Precision::O2(at::kBFloat16)},
      {"O3 fp16", Precision::O3()},
      {"O2 fp16, keep_fp32(\"wo\")", Precision::O2().keep_fp32("wo")}};
  std::cout << "| tensor";
  std::string rule = "|---";
  for (const auto& level : levels) {
    std::cout << " | " << level.first;
    rule += "|---";
  }
  std::cout << " |\n" << rule << "|\n";
  for (const auto* list : {&model.parameters(), &model.buffers()}) {
    const bool buffers = list == &model.buffers();
    for (const lockstep::ModelTensor& tensor : *list) {
      if (tensor.name.find("bias") != std::string::npos) {
        continue;
      }
      std::cout << "| " << tensor.name;
      for (const auto& level : levels) {
        const Precision& precision = level.second;
        std::cout << " | "
                  << short_name(buffers ? precision.buffer_dtype(tensor)
                                        : precision.storage_dtype(tensor));
      }
      std::cout << " |\n";
    }
  }
  std::cout << "| the wire";
  for (const auto& level : levels) {
    std::cout << " | " << short_name(level.second.wire_dtype());
  }
  std::cout << " |\n| fp32 masters";
  for (const auto& level : levels) {
    std::cout << " | " << (level.second.has_masters() ? "yes" : "no");
  }
  std::cout << " |\n| loss scale";
  for (const auto& level : levels) {
    std::cout << " | " << (level.second.loss_scaler_options().dynamic() ? "dynamic" : "1");
  }
  std::cout << " |\n";
}

}  // namespace

int main() {
  print_operators();
  std::cout << "\n";
  print_storage();
}
