#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace lockstep::detail {

/// A CUDA graph of one window: the device's work, without the host's, is captured once and launched
/// any number of times on the same memory. Threads: one. Ranks: local.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  /// Runs `work` directly, on the stream of the later capture, after the work of the caller's
  /// current stream and before what that stream gets next. Libraries set up there what they may not
  /// set up during a capture.
  virtual void run_apart(const std::function<void()>& work) = 0;
  /// Captures `work` and drops the graph, to find out whether `work` can be captured. Call any
  /// number of times before capture().
  virtual void rehearse(const std::function<void()>& work) = 0;
  /// Captures the device's work of `work`; the device runs nothing. Call once. If `work` throws,
  /// the graph is dropped and the exception goes on.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Launches the graph on the current stream.
  virtual void launch() = 0;
};

using MakeStepGraph = std::function<std::unique_ptr<StepGraph>()>;

/// CUDA graphs of `device`. Each launch draws new random numbers. Throws Error
/// (environment) where this build has no CUDA kernels.
std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device);

}  // namespace lockstep::detail
