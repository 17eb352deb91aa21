#pragma once

#include <lockstep/collectives/collective_log.h>
#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/nccl_transport.h>
#include <lockstep/collectives/nccl/watchdog.h>

#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace lockstep {

/// The collectives of an NCCL transport that are under way, and what ends them all: a thread looks
/// for errors of NCCL and for collectives older than the deadline. The first failure aborts the
/// communicator and stays; every later call throws it.
/// Threads: the transport's, and one of its own.
class Flights {
 public:
  using Tensors = std::array<at::Tensor, 2>;

  Flights(const NcclParts& parts, std::shared_ptr<NcclComm> comm);

  /// Gives the call its number.
  void issue(CollectiveCall& call);
  /// Its work is on the lane up to `mark`; the tensors are kept until then.
  void start(const CollectiveCall& call, Tensors tensors, std::shared_ptr<LaneMark> mark);
  /// Its work is part of a record.
  void note_recorded(const CollectiveCall& call);
  /// Forgets what is complete.
  void retire();
  /// Whether nothing is under way that the last retire() could see.
  bool empty();

  void throw_if_failed();
  /// Runs `body`; what it throws ends the transport.
  template <typename Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  /// Any thread. The first failure stays.
  void end(const std::exception_ptr& error);
  const CollectiveLog& log() const { return log_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {
    CollectiveCall call;
    Tensors tensors;
    std::shared_ptr<LaneMark> mark;
    Clock::time_point issued;
  };
  [[noreturn]] void fail(const std::exception_ptr& error);
  bool watch();
  std::string trouble();
  std::string late_flight() const;

  int rank_;
  int size_;
  std::chrono::duration<double> timeout_;
  std::shared_ptr<DeviceLane> lane_;
  std::function<void()> on_failure_;
  std::mutex mutex_;  // of what the watchdog reads too
  CollectiveLog log_;
  std::deque<Flight> flights_;
  std::exception_ptr failure_;
  std::shared_ptr<NcclComm> comm_;  // goes before the tensors: it waits for what is under way
  Watchdog watchdog_;               // its thread ends first of all
};

}  // namespace lockstep
