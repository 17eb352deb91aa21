#pragma once

#include <memory>
#include <thread>
#include <unordered_set>
#include <vector>

#include "work_queue.h"

/// Streams and events, and which work of one stream comes after which of another.
namespace fake_cuda {
struct Capture;
}  // namespace fake_cuda

struct CUgraphNode_st;

struct CUstream_st {
  uint32_t lane = 0;
  uint64_t number = 0;  // of its last piece
  int device = 0;
  int priority = 0;
  unsigned flags = 0;
  bool is_legacy = false;
  bool is_blocking() const { return !is_legacy && (flags & cudaStreamNonBlocking) == 0; }

  fake_cuda::ItemPtr last;
  std::shared_ptr<fake_cuda::Capture> capture;  // that records it
  std::vector<CUgraphNode_st*> tips;            // what its next node comes after
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  fake_cuda::ItemPtr item;  // its last record
  // If the last record was within a capture: that capture (also if it is over), and its place.
  std::shared_ptr<fake_cuda::Capture> capture;
  std::vector<CUgraphNode_st*> tips;
};

namespace fake_cuda {

/// All streams of the process. The queue's lock is held for all functions.
class Streams {
 public:
  static Streams& get();

  CUstream_st* make(unsigned flags, int priority);
  void remove(CUstream_st* stream);
  /// The stream behind a handle, also of the default streams of the current device and thread; null
  /// if it is none, or destroyed.
  CUstream_st* find(cudaStream_t handle);

  /// Puts work at the end of a stream, by CUDA's order: after the stream's last work; the legacy
  /// stream's also after all blocking streams of its device, and theirs after it. `after`: what
  /// else it comes after.
  ItemPtr append(CUstream_st& stream, Piece piece, std::vector<ItemPtr> after = {});

  void wait_for(WorkQueue::Lock& lock, const CUstream_st& stream);
  void wait_for_device(WorkQueue::Lock& lock, int device);
  bool poll(WorkQueue::Lock& lock, const CUstream_st& stream);

 private:
  CUstream_st& legacy(int device);
  CUstream_st& of_this_thread(int device);
  void forget_finished();

  std::vector<std::unique_ptr<CUstream_st>> legacy_;
  std::unordered_set<CUstream_st*> streams_;
  struct Leftover {
    int device;
    bool was_blocking;
    ItemPtr last;
  };
  /// The last pieces of destroyed streams: while they run, or until a wait for the device.
  std::vector<Leftover> leftovers_;
};

/// The events of the process; the queue's lock is held.
class Events {
 public:
  static Events& get();
  CUevent_st* make(unsigned flags);
  bool is_event(cudaEvent_t handle) const { return events_.contains(handle); }
  void remove(cudaEvent_t event);

 private:
  std::unordered_set<CUevent_st*> events_;
};

}  // namespace fake_cuda
