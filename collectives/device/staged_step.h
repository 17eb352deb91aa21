#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// A host collective between a copy from the device and one to it.
struct StagedStep {
  struct Copy {
    at::Tensor host;
    at::Tensor device;
  };
  std::vector<Copy> down;
  std::function<Work(Communicator&)> collective;
  std::vector<Copy> up;
};

/// Runs several steps at a time, in different stages: copy to the host, collective, copy back. Host
/// collectives are issued in the order of add(), so it is the same on every rank.
///
/// Threads: one. Errors: after a step has failed, every call throws the same exception.
class StagedPipeline {
 public:
  using Clock = std::chrono::steady_clock;

  StagedPipeline(std::shared_ptr<DeviceLane> down, std::shared_ptr<DeviceLane> up,
                 Communicator host, std::chrono::milliseconds timeout)
      : down_(std::move(down)), up_(std::move(up)), host_(std::move(host)), timeout_(timeout) {}

  /// Adds a step that starts after the work on the caller's current stream. Returns its number.
  uint64_t add(StagedStep step);
  /// Advances all steps without waiting.
  void advance();
  /// Waits until the step's copy to the device is queued. Returns the mark after that copy.
  std::shared_ptr<LaneMark> wait_for(uint64_t number);
  /// The mark after the step's copy to the device; null until that is queued.
  std::shared_ptr<LaneMark> mark_of(uint64_t number) const;
  /// All steps up to this number are complete and forgotten.
  uint64_t finished() const { return first_ - 1; }

 private:
  enum class Stage { waiting, coming_down, summing, going_up };
  struct Running {
    StagedStep step;
    Stage stage = Stage::waiting;
    std::shared_ptr<LaneMark> mark;
    Work work;
    Clock::time_point since;
  };

  bool move_once();
  bool move(Running& running, bool may_sum, bool may_rise);
  void start(Running& running);
  void raise(Running& running);
  template <typename Body>
  void guarded(const Body& body);

  std::shared_ptr<DeviceLane> down_;
  std::shared_ptr<DeviceLane> up_;
  Communicator host_;
  std::chrono::milliseconds timeout_;
  std::deque<Running> steps_;
  uint64_t first_ = 1;  // the number of steps_.front()
  std::exception_ptr failure_;
};

}  // namespace lockstep::detail
