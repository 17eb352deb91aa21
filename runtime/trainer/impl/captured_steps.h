#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/graph_capture.h>
#include <lockstep/runtime/step/impl/step.h>
#include <lockstep/runtime/step/impl/step_graph.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::detail {

/// Copies the inputs of a step to its device, except tensors that are there. The program may write
/// to a host tensor again at once: its values are in page-locked memory of lockstep.
std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& inputs, c10::Device device);

/// Captures whole windows (forward, backward, update) in CUDA graphs, one for each shape of the
/// inputs, and launches them. The first three windows of a shape run directly, on the stream of the
/// later capture, until an update has been made. The fourth window is captured. From then on inputs
/// are copied to fixed memory of the device and the graph is launched. At most eight shapes are
/// captured; windows of other shapes, and windows that are to be diagnosed, run directly.
///
/// The closure runs only in direct windows and during capture (twice with several ranks), never at
/// a launch: it must neither synchronise with the device nor take tensors of the host there
/// (NoHostReads), and its side effects on the host do not repeat. Threads: one.
///
/// Ranks: in each window all ranks run directly, or all capture, or all launch, because NCCL wants
/// a collective to be captured by all ranks or by none. A graph therefore belongs to the shapes of
/// all ranks' inputs, and before each window the hosts gather which shape each of them has. Before
/// a capture each rank rehearses without collectives, and all capture only if all could. A failure
/// of the rehearsal leaves all ranks where they were. A failure of the capture itself ends the
/// communicator of the devices, if there are several ranks.
class CapturedSteps {
 public:
  using Closure = std::function<Loss(const std::vector<at::Tensor>&)>;

  /// `device`: that of the model. `devices`: the communicator of all collectives of a window.
  CapturedSteps(Step& step, c10::Device device, Communicator devices, Agreement agreement,
                MakeStepGraph make)
      : step_(step),
        device_(device),
        devices_(std::move(devices)),
        agreement_(std::move(agreement)),
        make_(std::move(make)) {}

  /// Runs one window, update included, that Step::begin_window() began; `votes` as in
  /// Step::close_window(). Collective. Throws Error on every rank if the closure of one cannot be
  /// captured; no weight has moved then.
  StepReport run(const std::vector<at::Tensor>& inputs, const Closure& closure, const Votes& votes);

  /// The number of captured graphs.
  int64_t captured() const;
  /// Drops all graphs. Call it on every rank after the memory that they use was replaced.
  void forget() { windows_.clear(); }

 private:
  /// For each rank, the index of the first window that its inputs fit.
  using Shapes = std::vector<int64_t>;
  struct Window {
    Shapes shapes;
    std::vector<at::Tensor> inputs;  // the graph reads them here
    std::unique_ptr<StepGraph> graph;
    at::Tensor loss;  // each launch writes it; undefined before the capture
    int64_t collectives = 0;
    int64_t runs = 0;
  };
  StepReport run_directly(const std::vector<at::Tensor>& inputs, const Closure& closure,
                          const Votes& votes);
  Window* find(const std::vector<at::Tensor>& inputs, const std::optional<Error>& problem);
  Window& add(const Shapes& shapes, const std::vector<at::Tensor>& inputs);
  Shapes shapes_of_all_ranks(int64_t mine) const;
  void capture(Window& window, const Closure& closure);
  void capture(Window& window, CaptureKind kind, const Closure& closure);

  Step& step_;
  c10::Device device_;
  Communicator devices_;
  Agreement agreement_;
  MakeStepGraph make_;
  std::deque<Window> windows_;  // graphs refer to elements; destroyed before devices_
};

}  // namespace lockstep::detail
