#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <lockstep/collectives/as_error.h>
#include <lockstep/collectives/graph_capture.h>
#include <lockstep/runtime/graphed_steps.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t warm_up_windows = 3;
constexpr size_t most_records = 8;

/// A slot is dense, an input need not be.
bool fits(const at::Tensor& input, const at::Tensor& slot) {
  return input.sizes() == slot.sizes() && input.scalar_type() == slot.scalar_type() &&
         input.device() == slot.device() &&
         (input.strides() == slot.strides() || !input.is_non_overlapping_and_dense());
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

StepReport GraphedSteps::run(const std::vector<at::Tensor>& inputs, const Closure& closure) {
  Record* record = steps_.diagnosis().armed() ? nullptr : find(inputs);
  if (record == nullptr) {
    return ways_.as_it_comes([&] { return closure(inputs); });
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    record->slots[i].copy_(inputs[i], /*non_blocking=*/true);
  }
  if (record->runs++ < warm_up_windows || !steps_.can_be_recorded()) {
    StepReport report;
    record->graph->run_apart(
        [&] { report = ways_.as_it_comes([&] { return closure(record->slots); }); });
    return report;
  }
  if (!record->loss.defined()) {
    capture(*record, closure);
  }
  graph_capture(devices_).launch(record->collectives, [&] { record->graph->launch(); });
  return ways_.close([&] { return steps_.close_recorded_window(record->loss); });
}

/// The same on every rank; null where there are too many already. Throws the same Error on every
/// rank where the model of one has changed.
GraphedSteps::Record* GraphedSteps::find(const std::vector<at::Tensor>& inputs) {
  constexpr int64_t changed = -1;
  std::optional<Error> problem = steps_.change_of_model();
  const auto mine = std::find_if(records_.begin(), records_.end(), [&](const Record& record) {
    return std::equal(inputs.begin(), inputs.end(), record.slots.begin(), record.slots.end(), fits);
  });
  const Shapes shapes = everyones(problem ? changed : mine - records_.begin());
  if (std::find(shapes.begin(), shapes.end(), changed) != shapes.end()) {
    agreement_.raise(problem);
  }
  const auto found = std::find_if(records_.begin(), records_.end(),
                                  [&](const Record& record) { return record.shapes == shapes; });
  if (found != records_.end()) {
    return &*found;
  }
  return records_.size() < most_records ? &add(shapes, inputs) : nullptr;
}

GraphedSteps::Shapes GraphedSteps::everyones(int64_t shape) {
  Communicator& hosts = agreement_.communicator();
  const at::Tensor all = at::empty({hosts.size()}, at::kLong);
  hosts.all_gather(all, at::full({1}, shape, at::kLong)).wait();
  const int64_t* values = all.const_data_ptr<int64_t>();
  return Shapes(values, values + hosts.size());
}

GraphedSteps::Record& GraphedSteps::add(const Shapes& shapes,
                                        const std::vector<at::Tensor>& inputs) {
  Record record;
  agreement_.attempt([&] {
    record.shapes = shapes;
    record.graph = make_();
    for (const at::Tensor& input : inputs) {
      record.slots.push_back(at::empty_like(input));
    }
  });
  return records_.emplace_back(std::move(record));
}

void GraphedSteps::capture(Record& record, const Closure& closure) {
  try {
    agreement_.attempt([&] { record.loss = steps_.loss_like(); });
    if (devices_.size() > 1) {
      agreement_.attempt([&] { capture(record, CaptureKind::rehearsal, closure); });
    }
    capture(record, CaptureKind::real, closure);
  } catch (...) {
    record.loss = at::Tensor();
    record.graph = make_();
    record.runs = 0;
    steps_.end_window();
    throw;
  }
}

void GraphedSteps::capture(Record& record, CaptureKind kind, const Closure& closure) {
  const auto window = [&steps = steps_, &record, closure] {
    steps.run_window([&] { return closure(record.slots); }, record.loss);
  };
  record.collectives =
      graph_capture(devices_).capture(kind, [&](const std::function<void()>& join) {
        const auto work = [window, join] {
          window();
          join();
        };
        explained([&] {
          kind == CaptureKind::rehearsal ? record.graph->rehearse(work)
                                         : record.graph->capture(work);
        });
      });
}

int64_t GraphedSteps::recorded() const {
  return std::count_if(records_.begin(), records_.end(),
                       [](const Record& record) { return record.loss.defined(); });
}

}  // namespace lockstep
