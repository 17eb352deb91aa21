#include "lane.h"

namespace fake_cuda {

uint64_t Lane::take_place() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return next_place_++;
}

void Lane::give_back(uint64_t place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  given_back_.insert(place);
  while (!given_back_.empty() && *given_back_.begin() == turn_) {
    given_back_.erase(given_back_.begin());
    ++turn_;
  }
}

std::shared_ptr<RecordedCall> Lane::record(unsigned long long id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto call = std::make_shared<RecordedCall>();
  if (id == last_capture_) {
    call->previous = last_recorded_.lock();
  }
  last_capture_ = id;
  last_recorded_ = call;
  return call;
}

bool Lane::enter(uint64_t place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (busy_ || place != turn_) {
    return false;
  }
  busy_ = true;
  return true;
}

bool Lane::enter(const RecordedCall& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (busy_ || (call.previous != nullptr && call.previous->runs <= call.runs)) {
    return false;
  }
  busy_ = true;
  return true;
}

void Lane::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  busy_ = false;
}

}  // namespace fake_cuda
