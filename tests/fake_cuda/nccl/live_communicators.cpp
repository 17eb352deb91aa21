#include "live_communicators.h"

#include <mutex>
#include <set>

namespace fake_cuda {
namespace {

struct LiveComms {
  std::mutex mutex;
  std::set<Comm> comms;
  std::string last_error;
};

/// Never destroyed: other threads may use it to the end of the process.
LiveComms& live_comms() {
  static auto* const live = new LiveComms;
  return *live;
}

}  // namespace

Comm find_comm(ncclComm_t handle) {
  LiveComms& live = live_comms();
  const std::lock_guard<std::mutex> lock(live.mutex);
  for (const Comm& comm : live.comms) {
    if (comm.get() == handle) {
      return comm;
    }
  }
  return nullptr;
}

void add_comm(const Comm& comm) {
  LiveComms& live = live_comms();
  const std::lock_guard<std::mutex> lock(live.mutex);
  live.comms.insert(comm);
}

void remove_comm(const Comm& comm) {
  LiveComms& live = live_comms();
  const std::lock_guard<std::mutex> lock(live.mutex);
  live.comms.erase(comm);
}

void set_last_error(const std::string& text) {
  LiveComms& live = live_comms();
  const std::lock_guard<std::mutex> lock(live.mutex);
  live.last_error = text;
}

std::string last_error() {
  LiveComms& live = live_comms();
  const std::lock_guard<std::mutex> lock(live.mutex);
  return live.last_error;
}

}  // namespace fake_cuda
