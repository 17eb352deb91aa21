// The fused layers beside LibTorch's operators, forward and backward, in one process on one thread:
//   layers [SCALE]     SCALE shortens the run

#include <ATen/ATen.h>
#include <lockstep/amp/fused_layers.h>

#include <algorithm>
#include <functional>
#include <string>

#include "one_thread_main.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t rows = 2048;
constexpr int64_t width = 512;
constexpr int warm_up = 3;
constexpr int repetitions = 30;

struct Inputs {
  explicit Inputs(at::ScalarType dtype)
      : x(at::randn({rows, width}).to(dtype).requires_grad_(true)),
        slope(at::randn({rows, width}).to(dtype)),
        weight(at::ones({width}).requires_grad_(true)),
        bias(at::zeros({width}).requires_grad_(true)),
        own_weight(at::ones({width}).to(dtype).requires_grad_(true)),
        own_bias(at::zeros({width}).to(dtype).requires_grad_(true)),
        targets(at::randint(width, {rows}, at::kLong)) {}

  at::Tensor x, slope;
  at::Tensor weight, bias;          // fp32, as Precision keeps norms
  at::Tensor own_weight, own_bias;  // of x's dtype, as LibTorch's operators want them
  at::Tensor targets;
};

using Layer = std::function<at::Tensor(const Inputs&)>;

struct Pair {
  const char* name;
  Layer ours;
  Layer libtorch;
};

std::vector<Pair> pairs() {
  return {
      {"layer_norm", [](const Inputs& i) { return fused_layer_norm(i.x, i.weight, i.bias); },
       [](const Inputs& i) {
         return at::layer_norm(i.x, {width}, i.own_weight, i.own_bias, 1e-5);
       }},
      {"rms_norm", [](const Inputs& i) { return fused_rms_norm(i.x, i.weight); },
       [](const Inputs& i) { return at::rms_norm(i.x, {width}, i.own_weight, 1e-6); }},
      {"bias_gelu", [](const Inputs& i) { return fused_bias_gelu(i.x, i.bias); },
       [](const Inputs& i) { return at::gelu(i.x + i.own_bias, "tanh"); }},
      {"cross_entropy", [](const Inputs& i) { return fused_cross_entropy(i.x, i.targets, 0.1); },
       [](const Inputs& i) {
         return at::cross_entropy_loss(i.x, i.targets, {}, at::Reduction::Mean, -100, 0.1);
       }},
  };
}

void run_once(const Layer& layer, Inputs& inputs) {
  for (at::Tensor* leaf :
       {&inputs.x, &inputs.weight, &inputs.bias, &inputs.own_weight, &inputs.own_bias}) {
    leaf->mutable_grad().reset();
  }
  const at::Tensor y = layer(inputs);
  if (y.dim() == 0) {
    y.backward();
  } else {
    y.backward(inputs.slope);
  }
}

void measure(double scale) {
  const int runs = warm_up + std::max(3, static_cast<int>(repetitions * scale));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    Inputs inputs(dtype);
    for (const Pair& pair : pairs()) {
      const std::string name = std::string(pair.name) + (dtype == at::kFloat ? " fp32" : " bf16");
      Series ours(name, "ours");
      Series libtorch(name, "libtorch");
      for (int run = 0; run < runs; ++run) {
        for (auto& [layer, series] : {std::pair<const Layer&, Series&>(pair.ours, ours),
                                      std::pair<const Layer&, Series&>(pair.libtorch, libtorch)}) {
          if (run < warm_up) {
            run_once(layer, inputs);
            continue;
          }
          series.begin();
          run_once(layer, inputs);
          series.end();
        }
      }
      ours.write();
      libtorch.write();
    }
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::one_thread_main(argc, argv, lockstep::benchmarks::measure);
}
