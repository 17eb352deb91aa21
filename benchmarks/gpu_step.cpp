// gpu_step GROUPS STEPS (fp16|bf16|fp16-graph|bf16-graph MODEL)...: after a group that warms up,
// times groups of training steps at O2 on the Runtime's device (LOCKSTEP_DEVICE), which has
// finished a group before its end is taken; "-graph" replays recorded steps. Images are
// channels_last. Notes: parameters, bytes of the device in use, and how long it waited for the host
// between the steps of a last group, in millionths of its time.
#include <c10/core/Event.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/module.h>

#include <iostream>
#include <vector>

#include "device_clock.h"
#include "models.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

/// Where the device was at each begin and end of a step.
class Idleness {
 public:
  explicit Idleness(c10::Device device) : device_(device) {}

  void mark() {
    if (device_.is_cpu()) {
      return;  // it never waits for itself
    }
    marks_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    marks_.back().record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  int64_t millionths() {
    if (marks_.empty()) {
      return 0;
    }
    wait_for(device_);
    double waited = 0;
    for (size_t i = 1; i + 1 < marks_.size(); i += 2) {
      waited += marks_[i].elapsedTime(marks_[i + 1]);
    }
    return static_cast<int64_t>(1e6 * waited / marks_.front().elapsedTime(marks_.back()));
  }

 private:
  c10::Device device_;
  std::vector<c10::Event> marks_;
};

TrainerOptions options_of(const std::string& form) {
  const bool half = form.rfind("fp16", 0) == 0;
  return TrainerOptions()
      .precision(Precision::O2(half ? at::kHalf : at::kBFloat16))
      .cuda_graph(form.find("-graph") != std::string::npos);
}

void measure(Runtime& runtime, const std::string& form, int groups, int steps_in_group,
             const std::string& name) {
  const c10::Device device = runtime.device();
  at::manual_seed(0);
  const Workload workload = make_workload(name, {device, /*channels_last=*/true});
  Trainer trainer(runtime, workload.module, AdamW(1e-4), options_of(form));
  workload.next_batch();
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      trainer.step({}, [&](const std::vector<at::Tensor>&) { return Loss(workload.loss()); });
    }
  };
  Series series(name, "ours-" + form);
  series.note("parameters", count_parameters(*workload.module));
  steps(steps_in_group);
  for (int group = 0; group < groups; ++group) {
    wait_for(device);
    series.begin();
    steps(steps_in_group);
    wait_for(device);
    series.end();
  }
  series.note("used_bytes", used_bytes(device));
  Idleness idleness(device);
  for (int i = 0; i < steps_in_group; ++i) {
    idleness.mark();
    steps(1);
    idleness.mark();
  }
  series.note("idle_millionths", idleness.millionths());
  series.write();
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc < 5 || argc % 2 == 0) {
    std::cerr << "usage: " << argv[0]
              << " GROUPS STEPS (fp16|bf16|fp16-graph|bf16-graph MODEL)...\n";
    return 2;
  }
  try {
    lockstep::Runtime runtime(argc, argv, lockstep::RuntimeOptions().cudnn_benchmark(true));
    for (int i = 3; i < argc; i += 2) {
      lockstep::benchmarks::measure(runtime, argv[i], std::stoi(argv[1]), std::stoi(argv[2]),
                                    argv[i + 1]);
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
