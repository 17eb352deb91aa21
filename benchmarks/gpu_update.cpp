// gpu_update DEVICE PARAMETERS GROUPS: times groups of ten AdamW updates of fp16 gradients, fp32
// masters and fp16 weights, and copies within the device of as many bytes (28 a parameter).
#include <ATen/ATen.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/optimizers.h>

#include <cstring>
#include <functional>
#include <iostream>

#include "device_clock.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int updates_in_group = 10;
constexpr int64_t bytes_each_way = 14;  // read, and written

void measure(c10::Device device, int64_t parameters, int groups) {
  const auto options = at::TensorOptions().device(device);
  const auto rule = AdamW(1e-3).rule(0);
  amp::FlatSpan span;
  span.gradient = at::full({parameters}, 1e-3, options.dtype(at::kHalf));
  span.master = at::zeros({parameters}, options);
  span.weight = at::zeros({parameters}, options.dtype(at::kHalf));
  amp::add_moments(span, *rule);
  at::Tensor state = at::empty({static_cast<int64_t>(sizeof(amp::StepState))}, at::kByte);
  const amp::StepState first;
  std::memcpy(state.mutable_data_ptr(), &first, sizeof first);
  state = state.to(device);
  const at::Tensor from = at::zeros({parameters * bytes_each_way}, options.dtype(at::kByte));
  at::Tensor to = at::empty_like(from);

  const auto time = [&](const char* variant, const std::function<void()>& once) {
    Series series("adamw", variant);
    series.note("parameters", parameters);
    time_groups(series, device, groups, updates_in_group, [&](int) { once(); });
    series.write();
  };
  time("ours",
       [&] { rule->apply(span, static_cast<const amp::StepState*>(state.const_data_ptr())); });
  time("bound", [&] { to.copy_(from); });
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " DEVICE PARAMETERS GROUPS\n";
    return 2;
  }
  try {
    using namespace lockstep::benchmarks;
    measure(device_named(argv[1]), std::stoll(argv[2]), std::stoi(argv[3]));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
