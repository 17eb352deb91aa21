// gpu_step GROUPS STEPS (FORM MODEL)...: after a group that warms up, times groups of training
// steps on the Runtime's device (LOCKSTEP_DEVICE), which has finished a group before its end is
// taken. Forms: fp16, bf16: a Trainer at O2; fp16-graph, bf16-graph: one that replays recorded
// steps; libtorch-fp16, libtorch-bf16: plain LibTorch (gpu_libtorch_loop.h). Images are
// channels_last. Notes: parameters, bytes of the device in use, and how long it waits for the host
// in a step, in millionths of its time.
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <vector>

#include "device_clock.h"
#include "gpu_libtorch_loop.h"
#include "models.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

/// What the device takes for `work`, in ms, from when it has done all that it was given before.
double device_time(c10::Device device, const std::function<void()>& work) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(guard.getStream(device));
  work();
  end.record(guard.getStream(device));
  wait_for(device);
  return begin.elapsedTime(end);
}

/// How much longer a step takes than one that the host has put behind other work in time, so that
/// the device need not wait for it, in millionths; 0 on the CPU.
int64_t idle_millionths(c10::Device device, int count, const std::function<void(int)>& steps) {
  if (device.is_cpu()) {
    return 0;
  }
  constexpr int tries = 5;
  constexpr int64_t gibibyte = int64_t{1} << 30;  // takes a quarter of a ms at least
  steps(1);
  const double usual = device_time(device, [&] { steps(count); }) / count;
  at::Tensor other = at::zeros({gibibyte}, at::TensorOptions().dtype(at::kByte).device(device));
  std::vector<double> ahead;
  for (int i = 0; i < tries; ++i) {
    for (int k = 0; k < 1 + 8 * usual; ++k) {
      other.add_(1);
    }
    steps(1);
    ahead.push_back(device_time(device, [&] { steps(1); }));
  }
  std::sort(ahead.begin(), ahead.end());
  return std::max<int64_t>(0, static_cast<int64_t>(1e6 * (1.0 - ahead[tries / 2] / usual)));
}

bool begins_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

TrainerOptions options_of(const std::string& form) {
  return TrainerOptions()
      .precision(Precision::O2(begins_with(form, "fp16") ? at::kHalf : at::kBFloat16))
      .cuda_graph(form.find("-graph") != std::string::npos);
}

/// `step` is called for each step; the loop is constructed and warmed up outside the time.
void measure(const std::string& model, const std::string& variant, int groups, int steps_in_group,
             const Workload& workload, c10::Device device, const std::function<void()>& step) {
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      step();
    }
  };
  Series series(model, variant);
  series.note("parameters", count_parameters(*workload.module));
  time_groups(series, device, groups, steps_in_group, [&](int) { step(); });
  series.note("used_bytes", used_bytes(device));
  series.note("idle_millionths", idle_millionths(device, steps_in_group, steps));
  series.write();
}

void measure(Runtime& runtime, const std::string& form, const std::string& model, int groups,
             int steps_in_group) {
  const c10::Device device = runtime.device();
  at::manual_seed(0);
  const Workload workload = make_workload(model, {device, /*channels_last=*/true});
  workload.next_batch();
  if (begins_with(form, "libtorch-")) {
    GpuLibTorchLoop loop(workload, form == "libtorch-fp16" ? at::kHalf : at::kBFloat16, device);
    measure(model, form, groups, steps_in_group, workload, device, [&] { loop.step(); });
    return;
  }
  Trainer trainer(runtime, workload.module, AdamW(1e-4), options_of(form));
  measure(model, "ours-" + form, groups, steps_in_group, workload, device, [&] {
    trainer.step({}, [&](const std::vector<at::Tensor>&) { return Loss(workload.loss()); });
  });
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc < 5 || argc % 2 == 0) {
    std::cerr << "usage: " << argv[0] << " GROUPS STEPS (FORM MODEL)...\n";
    return 2;
  }
  try {
    lockstep::Runtime runtime(argc, argv, lockstep::RuntimeOptions().cudnn_benchmark(true));
    for (int i = 3; i < argc; i += 2) {
      lockstep::benchmarks::measure(runtime, argv[i], argv[i + 1], std::stoi(argv[1]),
                                    std::stoi(argv[2]));
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
