#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/batch.h>
#include <lockstep/runtime/trainer/impl/captured_steps.h>
#include <lockstep/runtime/trainer/own/no_host_reads.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr int64_t kDirectWindows = 3;
constexpr size_t kMostGraphs = 8;

/// True if `fixed` was made for such an input. It is dense; the input need not be.
bool fits(const at::Tensor& input, const at::Tensor& fixed) {
  return input.sizes() == fixed.sizes() && input.scalar_type() == fixed.scalar_type() &&
         input.device() == fixed.device() &&
         (input.strides() == fixed.strides() || !input.is_non_overlapping_and_dense());
}

template <typename Body>
void explained(const Body& body) {
  try {
    body();
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    const Error error = as_error(std::current_exception());
    throw Error(c10::str("cuda_graph: the step cannot be captured: ", error.what(),
                         "; its closure may neither read values of the device nor copy from or to "
                         "the host nor wait; else use cuda_graph(false)"),
                error.code());
  }
}

}  // namespace

std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& inputs, c10::Device device) {
  std::vector<at::Tensor> there;
  there.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) {
      there.push_back(input);
      continue;
    }
    const bool is_read_later = device.is_cuda() && input.is_cpu() && input.is_pinned();
    there.push_back(moved(
        is_read_later ? released_quietly(at::empty_like(input, input.options().pinned_memory(true)))
                            .copy_(input)
                      : input,
        device));
  }
  return there;
}

StepReport CapturedSteps::run(const std::vector<at::Tensor>& inputs, const Closure& closure,
                              const Votes& votes) {
  if (step_.diagnosis().armed()) {
    return run_directly(inputs, closure, votes);
  }
  std::vector<at::Tensor> there;
  std::optional<Error> problem = step_.change_of_model();
  try {
    there = on_device(inputs, device_);
  } catch (...) {
    problem = problem ? problem : as_error(std::current_exception());
  }
  Window* window = find(there, problem);
  if (window == nullptr) {
    return run_directly(there, closure, votes);
  }
  for (size_t i = 0; i < there.size(); ++i) {
    window->inputs[i].copy_(there[i], /*non_blocking=*/true);
  }
  if (window->runs++ < kDirectWindows || !step_.can_be_captured()) {
    StepReport report;
    window->graph->run_apart([&] { report = run_directly(window->inputs, closure, votes); });
    return report;
  }
  if (!window->loss.defined()) {
    capture(*window, closure);
  }
  const auto launch = [&] {
    graph_capture(devices_).launch(window->collectives, [&] { window->graph->launch(); });
  };
  return step_.launch_window(launch, window->loss, votes);
}

StepReport CapturedSteps::run_directly(const std::vector<at::Tensor>& inputs,
                                       const Closure& closure, const Votes& votes) {
  step_.micro_batch([&] { return closure(on_device(inputs, device_)); }, /*under_autocast=*/true);
  return step_.close_window(votes);
}

/// The window of all ranks' inputs, the same on every rank; null if there are too many graphs
/// already. Throws the same Error on every rank if one has a problem.
CapturedSteps::Window* CapturedSteps::find(const std::vector<at::Tensor>& inputs,
                                           const std::optional<Error>& problem) {
  constexpr int64_t kProblem = -1;
  const auto mine = std::find_if(windows_.begin(), windows_.end(), [&](const Window& window) {
    return std::equal(inputs.begin(), inputs.end(), window.inputs.begin(), window.inputs.end(),
                      fits);
  });
  const Shapes shapes = shapes_of_all_ranks(problem ? kProblem : mine - windows_.begin());
  if (std::find(shapes.begin(), shapes.end(), kProblem) != shapes.end()) {
    agreement_.raise(problem);
  }
  const auto found = std::find_if(windows_.begin(), windows_.end(),
                                  [&](const Window& window) { return window.shapes == shapes; });
  if (found != windows_.end()) {
    return &*found;
  }
  return windows_.size() < kMostGraphs ? &add(shapes, inputs) : nullptr;
}

CapturedSteps::Shapes CapturedSteps::shapes_of_all_ranks(int64_t mine) const {
  const Communicator& hosts = agreement_.communicator();
  const at::Tensor all = at::empty({hosts.size()}, at::kLong);
  hosts.all_gather(all, at::full({1}, mine, at::kLong)).wait();
  const int64_t* values = all.const_data_ptr<int64_t>();
  return Shapes(values, values + hosts.size());
}

CapturedSteps::Window& CapturedSteps::add(const Shapes& shapes,
                                          const std::vector<at::Tensor>& inputs) {
  Window window;
  agreement_.attempt([&] {
    window.shapes = shapes;
    window.graph = make_();
    for (const at::Tensor& input : inputs) {
      window.inputs.push_back(at::empty_like(input));
    }
  });
  return windows_.emplace_back(std::move(window));
}

void CapturedSteps::capture(Window& window, const Closure& closure) {
  try {
    agreement_.attempt([&] { window.loss = step_.loss_like(); });
    if (devices_.size() > 1) {
      agreement_.attempt([&] { capture(window, CaptureKind::rehearsal, closure); });
    }
    capture(window, CaptureKind::real, closure);
  } catch (...) {
    window.loss = at::Tensor();
    window.graph = make_();
    window.runs = 0;
    step_.end_window();
    throw;
  }
}

void CapturedSteps::capture(Window& window, CaptureKind kind, const Closure& closure) {
  const auto work = [&step = step_, &window, closure] {
    const NoHostReads guard;
    step.capture_window([&] { return closure(window.inputs); }, window.loss);
  };
  window.collectives =
      graph_capture(devices_).capture(kind, [&](const std::function<void()>& join) {
        const auto joined = [work, join] {
          work();
          join();
        };
        explained([&] {
          kind == CaptureKind::rehearsal ? window.graph->rehearse(joined)
                                         : window.graph->capture(joined);
        });
      });
}

int64_t CapturedSteps::captured() const {
  return std::count_if(windows_.begin(), windows_.end(),
                       [](const Window& window) { return window.loss.defined(); });
}

}  // namespace lockstep::detail
