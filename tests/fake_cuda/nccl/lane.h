#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

/// In which order the calls of one rank run.
namespace fake_cuda {

/// A call that a graph has recorded. Each launch of the graph runs it once.
struct RecordedCall {
  std::shared_ptr<RecordedCall> previous;  // of the same capture
  std::atomic<uint64_t> runs{0};
};

/// Calls of a communicator run one at a time, in the order in which the program made them, whatever
/// streams they are on. Recorded calls run when their graph is launched, in the order of the
/// capture. Communicators that share NCCL's buffers (splitShare) have one lane and end together.
class Lane {
 public:
  /// The place of a call in the order.
  uint64_t take_place();
  void give_back(uint64_t place);
  /// A call in the capture `id` of a stream.
  std::shared_ptr<RecordedCall> record(unsigned long long id);

  /// True if the call runs now, until leave(). Never waits.
  bool enter(uint64_t place);
  bool enter(const RecordedCall& call);
  void leave();

  void abort() { aborted_.store(true); }
  bool is_aborted() const { return aborted_.load(); }

 private:
  std::mutex mutex_;
  uint64_t next_place_ = 0;
  uint64_t turn_ = 0;
  std::set<uint64_t> given_back_;  // out of turn
  bool busy_ = false;
  unsigned long long last_capture_ = 0;
  std::weak_ptr<RecordedCall> last_recorded_;
  std::atomic<bool> aborted_{false};
};

/// Gives a place back when the call has gone, whether it ran or not.
class Place {
 public:
  explicit Place(std::shared_ptr<Lane> lane)
      : lane_(std::move(lane)), number_(lane_->take_place()) {}
  ~Place() { lane_->give_back(number_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  uint64_t number() const { return number_; }

 private:
  std::shared_ptr<Lane> lane_;
  uint64_t number_;
};

}  // namespace fake_cuda
