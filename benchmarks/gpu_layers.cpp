// gpu_layers DEVICE ROWS WIDTH COLUMNS GROUPS: times groups of ten forward and of ten backward
// passes of the fused layers and of LibTorch's operators: norms of rows of WIDTH elements, GELU of
// four times as many, cross-entropy over COLUMNS classes. Beside each, "bound": copies of as many
// bytes as an element's inputs and outputs have. In bf16.
#include <ATen/ATen.h>

#include <functional>
#include <iostream>
#include <string>

#include "device_clock.h"
#include "layer_pairs.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int passes_in_group = 10;
constexpr int64_t element = 2;  // bytes

/// Rows that a pass reads or writes at least.
int64_t rows_moved(const std::string& layer, bool backward) {
  if (layer == "cross_entropy") {
    return backward ? 2 : 1;
  }
  return backward ? 3 : 2;
}

/// Times groups of ten passes of layers of one shape.
void measure(
    const std::string& name, const std::string& variant, c10::Device device, int groups,
    const std::function<void(int)>& pass, const std::function<void()>& prepare = [] {}) {
  Series series(name, variant);
  time_groups(series, device, groups, passes_in_group, pass, prepare);
  series.write();
}

void measure_layer(const LayerPair& pair, LayerInputs& inputs, c10::Device device, int groups) {
  const std::string forward = std::string(pair.name) + " forward";
  const std::string backward = std::string(pair.name) + " backward";
  for (const auto& [variant, layer] :
       {std::pair<const char*, const LayerPair::Layer&>("ours", pair.ours),
        std::pair<const char*, const LayerPair::Layer&>("libtorch", pair.libtorch)}) {
    std::vector<at::Tensor> outputs(passes_in_group);
    measure(forward, variant, device, groups, [&, &layer = layer](int) { layer(inputs); });
    measure(
        backward, variant, device, groups,
        [&](int i) {
          run_backward(outputs[i], inputs);
          inputs.forget_gradients();
        },
        [&, &layer = layer] {
          for (at::Tensor& output : outputs) {
            output = layer(inputs);
          }
          inputs.forget_gradients();
        });
  }
  for (const bool is_backward : {false, true}) {
    const int64_t bytes =
        inputs.x.numel() * element * rows_moved(pair.name, is_backward) / 2;  // each way
    const at::Tensor from = at::zeros({bytes}, inputs.x.options().dtype(at::kByte));
    at::Tensor to = at::empty_like(from);
    measure(is_backward ? backward : forward, "bound", device, groups,
            [&](int) { to.copy_(from); });
  }
}

void measure_all(c10::Device device, int64_t rows, int64_t width, int64_t columns, int groups) {
  for (const LayerPair& pair : layer_pairs()) {
    const std::string name = pair.name;
    const int64_t own = name == "cross_entropy" ? columns : name == "bias_gelu" ? 4 * width : width;
    LayerInputs inputs(rows, own, at::kBFloat16, device);
    measure_layer(pair, inputs, device, groups);
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: " << argv[0] << " DEVICE ROWS WIDTH COLUMNS GROUPS\n";
    return 2;
  }
  try {
    using namespace lockstep::benchmarks;
    measure_all(device_named(argv[1]), std::stoll(argv[2]), std::stoll(argv[3]),
                std::stoll(argv[4]), std::stoi(argv[5]));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
