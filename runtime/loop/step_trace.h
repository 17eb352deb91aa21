#pragma once

#include <memory>
#include <string>

namespace lockstep {

class Runtime;

/// Records what steps do on all ranks while the object lives, as a trace for Perfetto
/// (https://ui.perfetto.dev) or chrome://tracing.
///
///   lockstep::StepTrace trace(runtime);
///   trainer.step([&] {...});
///   trace.write("step.json");
///
/// The trace has a process for each rank. Its thread "step" shows forward, backward, in it the
/// start of each bucket's all-reduce with its bytes, the exposed wait for each bucket, the votes
/// and the update. Its thread "bucket <n>" shows the all-reduce of that bucket, from its start
/// until this rank has waited for it. Times are those of the host. A device works later: there,
/// spans show when work was enqueued, and a captured step (TrainerOptions::cuda_graph) has no
/// forward and backward. The ranks' times begin at a common barrier. LibTorch's profiler sees the
/// same names. Costs little, but more than nothing: record a few steps in the middle of a run.
///
/// Ranks: every rank makes one, and calls write(), together. Threads: one; steps of the thread that
/// made the object are recorded. Throws Error if another StepTrace of this process is recording.
class StepTrace {
 public:
  [[nodiscard]] explicit StepTrace(const Runtime& runtime);
  /// Ends the recording.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Ends the recording. Rank 0 writes the spans of all ranks to `path`. Throws the same Error on
  /// every rank if that fails.
  void write(const std::string& path);

 private:
  struct Recorder;
  const Runtime& runtime_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace lockstep
