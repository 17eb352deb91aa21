// Models of torch.export beside the same models written in C++, in one process on one thread. They
// are so small that the time is that of the operators' calls, not of their work:
//   exported FOLDER [SCALE]     FOLDER has what peers/export_models.py wrote, SCALE shortens the
//   run

#include <ATen/ATen.h>
#include <lockstep/inputs/exported_module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t width = 32;
constexpr int64_t heads = 4;
constexpr int layers = 16;
constexpr int warm_up = 100;
constexpr int repetitions = 3000;

struct Mlp : torch::nn::Module {
  Mlp() {
    for (int i = 0; i < layers; ++i) {
      stack->push_back(torch::nn::Linear(width, width));
      stack->push_back(torch::nn::Tanh());
    }
    register_module("stack", stack);
  }
  at::Tensor forward(const at::Tensor& x) { return stack->forward(x); }
  torch::nn::Sequential stack;
};

torch::nn::LayerNorm norm() {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

struct Block : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    const auto sizes = x.sizes().vec();
    std::vector<at::Tensor> parts = qkv->forward(norm1->forward(x)).chunk(3, -1);
    for (at::Tensor& part : parts) {
      part = part.view({sizes[0], sizes[1], heads, sizes[2] / heads}).transpose(1, 2);
    }
    const at::Tensor y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {},
                                                          /*dropout_p=*/0.0, /*is_causal=*/true);
    x = x + out->forward(y.transpose(1, 2).reshape(sizes));
    return x + down->forward(at::gelu(up->forward(norm2->forward(x))));
  }
  torch::nn::LayerNorm norm1 = register_module("norm1", norm());
  torch::nn::LayerNorm norm2 = register_module("norm2", norm());
  torch::nn::Linear qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(width, width));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(width, 4 * width));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(4 * width, width));
};

using Forward = std::function<at::Tensor(const at::Tensor&)>;

void run_once(const Forward& forward, torch::nn::Module& module, const at::Tensor& x,
              bool backward) {
  const at::Tensor y = forward(x);
  if (backward) {
    y.sum().backward();
    for (const at::Tensor& parameter : module.parameters()) {
      parameter.mutable_grad().reset();
    }
  }
}

template <typename Net>
void measure(const std::string& folder, const std::string& name, const at::Tensor& x,
             double scale) {
  ExportedModule exported(folder + "/" + name + ".pt2");
  Net written;
  struct Side {
    Forward forward;
    torch::nn::Module& module;
    Series series;
  };
  for (const bool backward : {false, true}) {
    const std::string row = name + (backward ? " forward and backward" : " forward");
    Side sides[] = {{[&](const at::Tensor& in) { return exported->forward(in); }, *exported,
                     Series(row, "ours")},
                    {[&](const at::Tensor& in) { return written.forward(in); }, written,
                     Series(row, "libtorch")}};
    const int runs = warm_up + std::max(30, static_cast<int>(repetitions * scale));
    for (int run = 0; run < runs; ++run) {
      for (Side& side : sides) {
        if (run >= warm_up) {
          side.series.begin();
        }
        run_once(side.forward, side.module, x, backward);
        if (run >= warm_up) {
          side.series.end();
        }
      }
    }
    for (const Side& side : sides) {
      side.series.write();
    }
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  at::set_num_threads(1);
  try {
    const std::string folder = argc > 1 ? argv[1] : ".";
    const double scale = argc > 2 ? std::stod(argv[2]) : 1.0;
    measure<Mlp>(folder, "mlp", at::randn({4, width}), scale);
    measure<Block>(folder, "block", at::randn({4, 8, width}), scale);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
