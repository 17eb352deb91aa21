#pragma once

#include <lockstep/runtime/step.h>
#include <lockstep/runtime/step_graph.h>

#include <deque>
#include <vector>

namespace lockstep {

/// Records the device's work of whole windows (forward, backward, update) and runs it again, for
/// each shape of the inputs apart. The first three windows of a shape run as they come, on the
/// stream that is recorded then, until an update has been made. The fourth is recorded; from it on
/// inputs are copied to fixed memory and the record is run. At most eight shapes are recorded; any
/// other, and windows that are to be diagnosed, run as they come.
///
/// A closure is called while it is recorded, and no more: it may not read the device, and what it
/// does on the host happens no more. Ranks: one. Threads: one.
class GraphedSteps {
 public:
  using Closure = std::function<Loss(const std::vector<at::Tensor>&)>;

  /// What a Trainer does around windows.
  struct Ways {
    /// Runs a closure's window, update included, as it comes.
    std::function<StepReport(const std::function<Loss()>&)> as_it_comes;
    /// Ends a window by this.
    std::function<StepReport(const std::function<StepReport()>&)> close;
  };

  GraphedSteps(Step& steps, MakeStepGraph make, Ways ways)
      : steps_(steps), make_(std::move(make)), ways_(std::move(ways)) {}

  /// A window that begin_window() began. Throws Error where the closure cannot be recorded; nothing
  /// has moved then.
  StepReport run(const std::vector<at::Tensor>& inputs, const Closure& closure);

  int64_t recorded() const;

 private:
  struct Recording {
    std::vector<at::Tensor> slots;
    std::unique_ptr<StepGraph> graph;
    at::Tensor loss;  // written by each replay
    int64_t runs = 0;
  };
  Recording* find(const std::vector<at::Tensor>& inputs);
  void capture(Recording& recording, const Closure& closure);

  Step& steps_;
  MakeStepGraph make_;
  Ways ways_;
  std::deque<Recording> recordings_;  // records refer to them
};

}  // namespace lockstep
