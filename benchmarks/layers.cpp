// The fused layers beside LibTorch's operators, forward and backward, in one process on one thread:
//   layers [SCALE]     SCALE shortens the run

#include <algorithm>
#include <string>

#include "layer_pairs.h"
#include "one_thread_main.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t rows = 2048;
constexpr int64_t width = 512;
constexpr int warm_up = 3;
constexpr int repetitions = 30;

void run_once(const LayerPair::Layer& layer, LayerInputs& inputs) {
  inputs.forget_gradients();
  run_backward(layer(inputs), inputs);
}

void measure(double scale) {
  const int runs = warm_up + std::max(3, static_cast<int>(repetitions * scale));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    LayerInputs inputs(rows, width, dtype, c10::kCPU);
    for (const LayerPair& pair : layer_pairs()) {
      const std::string name = std::string(pair.name) + (dtype == at::kFloat ? " fp32" : " bf16");
      Series ours(name, "ours");
      Series libtorch(name, "libtorch");
      for (int run = 0; run < runs; ++run) {
        for (auto& [layer, series] :
             {std::pair<const LayerPair::Layer&, Series&>(pair.ours, ours),
              std::pair<const LayerPair::Layer&, Series&>(pair.libtorch, libtorch)}) {
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
