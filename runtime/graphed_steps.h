#pragma once

#include <lockstep/collectives/graph_capture.h>
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
/// A closure is called while it is recorded (twice where there are several ranks), and no more: it
/// may not read the device, and what it does on the host happens no more. Threads: one.
///
/// Ranks: all ranks record a window, or run a record, or run it as it comes. NCCL wants that: a
/// collective is recorded by all ranks or by none, and they replay together what they recorded
/// together. So a record belongs to the shapes of all ranks' inputs, and before each window the
/// hosts tell each other, on the control communicator, which shape theirs is; where the device is
/// ahead of no host that costs no time. Ranks first rehearse, each for itself and without
/// collectives, and record together only if all could. What goes wrong in the rehearsal leaves all
/// ranks where they were; what goes wrong in the record after it ends the communicator of
/// `devices`, where there are several ranks.
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

  /// `devices`: of all collectives of a window.
  GraphedSteps(Step& steps, Communicator devices, Agreement agreement, MakeStepGraph make,
               Ways ways)
      : steps_(steps),
        devices_(std::move(devices)),
        agreement_(std::move(agreement)),
        make_(std::move(make)),
        ways_(std::move(ways)) {}

  /// A window that begin_window() began. Collective. Throws Error on every rank where the closure
  /// of one cannot be recorded; no weight has moved then.
  StepReport run(const std::vector<at::Tensor>& inputs, const Closure& closure);

  int64_t recorded() const;
  /// The memory that was recorded is gone. Every rank.
  void forget() { records_.clear(); }

 private:
  /// For each rank, the first record whose inputs have the shape of that rank's.
  using Shapes = std::vector<int64_t>;
  struct Record {
    Shapes shapes;
    std::vector<at::Tensor> slots;
    std::unique_ptr<StepGraph> graph;
    at::Tensor loss;  // written by each replay
    int64_t collectives = 0;
    int64_t runs = 0;
  };
  Record* find(const std::vector<at::Tensor>& inputs);
  Record& add(const Shapes& shapes, const std::vector<at::Tensor>& inputs);
  Shapes everyones(int64_t shape);
  void capture(Record& record, const Closure& closure);
  void capture(Record& record, CaptureKind kind, const Closure& closure);

  Step& steps_;
  Communicator devices_;
  Agreement agreement_;
  MakeStepGraph make_;
  Ways ways_;
  std::deque<Record> records_;  // they refer to their places here; gone before devices_
};

}  // namespace lockstep
