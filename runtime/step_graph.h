#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace lockstep {

/// Work of a device that is recorded once and run again on the same memory, without the host's
/// part. Threads: one. Ranks: local.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  /// Runs `work` on the stream that capture() will record, after what the caller's current stream
  /// holds and before what it gets next: libraries set up there what may not be set up in a record.
  virtual void run_apart(const std::function<void()>& work) = 0;
  /// Like capture(), and forgets what was recorded. Any number of times before it.
  virtual void rehearse(const std::function<void()>& work) = 0;
  /// Records what `work` gives the device to do; the device does nothing. Once. What `work` throws
  /// goes on, the record is then dropped.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Gives the record to the current stream.
  virtual void launch() = 0;
};

using MakeStepGraph = std::function<std::unique_ptr<StepGraph>()>;

/// CUDA graphs of `device`, random numbers included: each replay draws new ones. Throws Error
/// (environment) where this build has no CUDA kernels.
std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device);

}  // namespace lockstep
