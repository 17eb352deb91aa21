#pragma once

#include <lockstep/collectives/impl/collective_log.h>
#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/nccl_parts.h>
#include <lockstep/collectives/nccl/watchdog.h>

#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace lockstep::detail {

/// The in-flight collectives of an NCCL transport, and the watchdog: a thread that polls NCCL for
/// errors and looks for collectives older than the deadline. The first failure aborts the
/// communicator; every later call throws it. Threads: the transport's and the watchdog's.
class InFlightOps {
 public:
  using Tensors = std::array<at::Tensor, 2>;

  InFlightOps(const NcclParts& parts, std::shared_ptr<NcclComm> comm);

  /// Gives the call its sequence number.
  void issue(CollectiveCall& call);
  /// The call's work on the lane ends at `mark`. Keeps the tensors alive until then.
  void start(const CollectiveCall& call, Tensors tensors, std::shared_ptr<LaneMark> mark);
  /// The call was captured into a graph.
  void note_captured(const CollectiveCall& call);
  /// Removes the collectives that are complete.
  void retire();
  /// Whether the last retire() found every collective complete.
  bool empty();

  void throw_if_failed();
  /// Runs `body`; an exception from it ends the transport.
  template <typename Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  /// Ends the transport with `error`, unless it has failed already. Any thread.
  void end(const std::exception_ptr& error);
  const CollectiveLog& log() const { return log_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct InFlightOp {
    CollectiveCall call;
    Tensors tensors;
    std::shared_ptr<LaneMark> mark;
    Clock::time_point issued;
  };
  [[noreturn]] void fail(const std::exception_ptr& error);
  bool watch();
  std::string trouble();
  std::string late_op() const;

  int rank_;
  int size_;
  std::chrono::duration<double> timeout_;
  std::shared_ptr<DeviceLane> lane_;
  std::function<void()> on_failure_;
  std::mutex mutex_;  // protects log_, ops_ and failure_
  CollectiveLog log_;
  std::deque<InFlightOp> ops_;
  std::exception_ptr failure_;
  std::shared_ptr<NcclComm> comm_;  // destroyed before ops_: it waits for work in flight
  Watchdog watchdog_;               // destroyed first
};

}  // namespace lockstep::detail
