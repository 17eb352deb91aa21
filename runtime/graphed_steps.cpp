#include <ATen/ops/empty_like.h>
#include <lockstep/runtime/as_error.h>
#include <lockstep/runtime/graphed_steps.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t warm_up_windows = 3;
constexpr size_t most_recordings = 8;

/// A slot is dense, an input need not be.
bool fits(const at::Tensor& input, const at::Tensor& slot) {
  return input.sizes() == slot.sizes() && input.scalar_type() == slot.scalar_type() &&
         input.device() == slot.device() &&
         (input.strides() == slot.strides() || !input.is_non_overlapping_and_dense());
}

}  // namespace

StepReport GraphedSteps::run(const std::vector<at::Tensor>& inputs, const Closure& closure) {
  Recording* recording = steps_.diagnosis().armed() ? nullptr : find(inputs);
  if (recording == nullptr) {
    return ways_.as_it_comes([&] { return closure(inputs); });
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    recording->slots[i].copy_(inputs[i], /*non_blocking=*/true);
  }
  if (recording->runs++ < warm_up_windows || !steps_.can_be_recorded()) {
    StepReport report;
    recording->graph->run_apart(
        [&] { report = ways_.as_it_comes([&] { return closure(recording->slots); }); });
    return report;
  }
  if (!recording->loss.defined()) {
    capture(*recording, closure);
  }
  recording->graph->replay();
  return ways_.close([&] { return steps_.close_recorded_window(recording->loss); });
}

/// Null where there are too many already.
GraphedSteps::Recording* GraphedSteps::find(const std::vector<at::Tensor>& inputs) {
  const auto found =
      std::find_if(recordings_.begin(), recordings_.end(), [&](const Recording& recording) {
        return std::equal(inputs.begin(), inputs.end(), recording.slots.begin(),
                          recording.slots.end(), fits);
      });
  if (found != recordings_.end()) {
    return &*found;
  }
  if (recordings_.size() == most_recordings) {
    return nullptr;
  }
  Recording& recording = recordings_.emplace_back();
  recording.graph = make_();
  for (const at::Tensor& input : inputs) {
    recording.slots.push_back(at::empty_like(input));
  }
  return &recording;
}

void GraphedSteps::capture(Recording& recording, const Closure& closure) {
  const at::Tensor loss = steps_.loss_like();
  try {
    recording.graph->capture([&steps = steps_, &recording, closure, loss] {
      steps.run_window([&] { return closure(recording.slots); }, loss);
    });
  } catch (...) {
    const Error error = as_error(std::current_exception());
    recording.graph = make_();
    recording.runs = 0;
    steps_.abandon();
    throw Error(c10::str("cuda_graph: the step cannot be recorded: ", error.what(),
                         "; its closure may neither read values of the device nor copy from or to "
                         "the host nor wait; else use cuda_graph(false)"),
                error.code());
  }
  recording.loss = loss;
}

int64_t GraphedSteps::recorded() const {
  return std::count_if(recordings_.begin(), recordings_.end(),
                       [](const Recording& recording) { return recording.loss.defined(); });
}

}  // namespace lockstep
