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

/// Runs steps in the order of their arrival, several at a time in different stages. The host
/// collectives are issued in that order, so ranks whose devices differ in speed still agree.
///
/// Threads: one. Once a step has failed, every call throws what it threw.
class StagedPipeline {
 public:
  using Clock = std::chrono::steady_clock;

  StagedPipeline(std::shared_ptr<DeviceLane> down, std::shared_ptr<DeviceLane> up,
                 Communicator host, std::chrono::milliseconds timeout)
      : down_(std::move(down)), up_(std::move(up)), host_(std::move(host)), timeout_(timeout) {}

  /// What is on the caller's current stream now happens before the step. Returns its number.
  uint64_t add(StagedStep step);
  /// Moves steps on without waiting.
  void advance();
  /// Waits until the step's way up is queued, and gives the mark behind it.
  std::shared_ptr<LaneMark> wait_for(uint64_t number);
  /// The mark behind the step's way up, or null while that is not queued.
  std::shared_ptr<LaneMark> mark_of(uint64_t number) const;
  /// Forgets the steps up to this number; their marks are not asked for again.
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
  bool move(Running& running, bool first_to_sum);
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
