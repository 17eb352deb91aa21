#include "streams.h"

#include <algorithm>
#include <map>
#include <string>

#include "contexts.h"

namespace fake_cuda {

Streams& Streams::get() {
  static auto& streams = *new Streams;
  return streams;
}

CUstream_st* Streams::make(unsigned flags, int priority) {
  static int made = 0;
  auto* stream = new CUstream_st;
  stream->lane = new_lane("stream " + std::to_string(++made));
  stream->device = current_device();
  stream->flags = flags;
  stream->priority = priority;
  streams_.insert(stream);
  return stream;
}

void Streams::remove(CUstream_st* stream) {
  forget_finished();
  // What is done counts for the check of races: a wait for the device orders it too.
  if (stream->last && (!stream->last->done || races_are_checked())) {
    leftovers_.push_back({stream->device, stream->is_blocking(), stream->last});
  }
  streams_.erase(stream);
  delete stream;
}

CUstream_st& Streams::legacy(int device) {
  if (legacy_.empty()) {
    for (int i = 0; i < number_of_devices(); ++i) {
      legacy_.push_back(std::make_unique<CUstream_st>());
      legacy_[i]->lane = new_lane("legacy stream of device " + std::to_string(i));
      legacy_[i]->device = i;
      legacy_[i]->is_legacy = true;
    }
  }
  return *legacy_[device];
}

CUstream_st& Streams::of_this_thread(int device) {
  thread_local std::map<int, CUstream_st*> mine;
  CUstream_st*& stream = mine[device];
  if (stream == nullptr) {
    stream = make(cudaStreamDefault, 0);
  }
  return *stream;
}

CUstream_st* Streams::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return &legacy(current_device());
  }
  if (handle == cudaStreamPerThread) {
    return &of_this_thread(current_device());
  }
  return streams_.contains(handle) ? handle : nullptr;
}

ItemPtr Streams::append(CUstream_st& stream, Piece piece, std::vector<ItemPtr> after) {
  after.push_back(stream.last);
  if (stream.is_legacy) {
    for (const CUstream_st* other : streams_) {
      if (other->device == stream.device && other->is_blocking()) {
        after.push_back(other->last);
      }
    }
    for (const Leftover& leftover : leftovers_) {
      if (leftover.device == stream.device && leftover.was_blocking) {
        after.push_back(leftover.last);
      }
    }
  } else if (stream.is_blocking()) {
    after.push_back(legacy(stream.device).last);
  }
  stream.last = WorkQueue::get().submit(std::move(piece), stream.lane, ++stream.number, after);
  return stream.last;
}

void Streams::wait_for(WorkQueue::Lock& lock, const CUstream_st& stream) {
  const ItemPtr last = stream.last;
  WorkQueue::get().wait(lock, last);
  if (stream.is_legacy) {
    // Waiting for the legacy stream is an operation of it, so it waits for the blocking streams.
    std::vector<ItemPtr> others;
    for (const CUstream_st* other : streams_) {
      if (other->device == stream.device && other->is_blocking()) {
        others.push_back(other->last);
      }
    }
    for (const ItemPtr& other : others) {
      WorkQueue::get().wait(lock, other);
    }
  }
}

void Streams::wait_for_device(WorkQueue::Lock& lock, int device) {
  forget_finished();
  std::vector<ItemPtr> open{legacy(device).last};
  for (const CUstream_st* stream : streams_) {
    if (stream->device == device) {
      open.push_back(stream->last);
    }
  }
  for (const Leftover& leftover : leftovers_) {
    if (leftover.device == device) {
      open.push_back(leftover.last);
    }
  }
  for (const ItemPtr& item : open) {
    WorkQueue::get().wait(lock, item);
  }
  std::erase_if(leftovers_, [device](const Leftover& leftover) {
    return leftover.device == device && leftover.last->done;
  });
}

bool Streams::poll(WorkQueue::Lock& lock, const CUstream_st& stream) {
  const ItemPtr last = stream.last;
  return WorkQueue::get().poll(lock, last);
}

void Streams::forget_finished() {
  if (!races_are_checked()) {
    std::erase_if(leftovers_, [](const Leftover& leftover) { return leftover.last->done; });
  }
}

Events& Events::get() {
  static auto& events = *new Events;
  return events;
}

CUevent_st* Events::make(unsigned flags) {
  auto* event = new CUevent_st;
  event->device = current_device();
  event->flags = flags;
  events_.insert(event);
  return event;
}

void Events::remove(cudaEvent_t event) {
  events_.erase(event);
  delete event;
}

}  // namespace fake_cuda
