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
#include <optional>
#include <string>

namespace lockstep::detail {

/// The in-flight collectives of an NCCL transport, with two threads beside the transport's. One
/// asks NCCL for errors and the device for complete collectives; the driver may keep it waiting for
/// as long as another thread frees memory or waits behind a collective that hangs. The other calls
/// neither: it keeps the deadlines. The first failure aborts the communicator; every later call
/// throws it. Where the abort, or the device, has then not answered within the abort deadline, the
/// process is asked to end (ask_for_end()). mutex_ is never held in a call of NCCL or the device.
class InFlightOps {
 public:
  using Tensors = std::array<at::Tensor, 2>;

  InFlightOps(const NcclParts& parts, std::shared_ptr<NcclComm> comm);
  /// Prints a failure that no call has thrown. While an exception leaves: aborts what is in flight.
  ~InFlightOps();
  InFlightOps(const InFlightOps&) = delete;
  InFlightOps& operator=(const InFlightOps&) = delete;

  /// Gives the call its sequence number.
  void issue(CollectiveCall& call);
  /// The call's work on the lane ends at `mark`. Keeps the tensors alive until then.
  void start(const CollectiveCall& call, Tensors tensors, std::shared_ptr<LaneMark> mark);
  /// The call was captured into a graph.
  void note_captured(const CollectiveCall& call);
  /// Removes the collectives that are complete.
  void retire();
  /// Whether the last retire() found every collective complete, and nobody asks the device.
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
    bool is_complete = false;    // the device has said so
    Clock::time_point denied{};  // when it last said no
  };
  [[noreturn]] void fail(const std::exception_ptr& error);
  bool ask();
  std::string ask_device();
  std::shared_ptr<LaneMark> next_mark();
  void note(const LaneMark& mark, bool is_complete);
  bool watch();
  std::string late_op() const;

  int rank_;
  int size_;
  std::chrono::duration<double> timeout_;
  std::chrono::milliseconds abort_deadline_;
  std::chrono::milliseconds interval_;
  std::shared_ptr<DeviceLane> lane_;
  std::function<void()> on_failure_;
  std::mutex mutex_;  // protects the following but comm_
  CollectiveLog log_;
  std::deque<InFlightOp> ops_;
  std::string trouble_;                     // what NCCL or the device has said
  std::optional<Clock::time_point> asked_;  // since then a round of questions is under way
  std::exception_ptr failure_;
  bool is_told_ = false;  // a call has thrown it
  Clock::time_point failed_;
  std::shared_ptr<NcclComm> comm_;  // destroyed before ops_: it waits for work in flight
  Watchdog watchdog_;
  Watchdog asks_;  // destroyed first, while the watchdog still keeps the deadlines
};

}  // namespace lockstep::detail
