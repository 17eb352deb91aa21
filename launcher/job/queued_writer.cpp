#include "job/queued_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep::launcher {

struct QueuedWriter::State {
  State(int file, std::string name, size_t limit)
      : file(file), name(std::move(name)), limit(limit) {}

  const int file;
  const std::string name;
  const size_t limit;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> texts;  // the first one is being written
  size_t bytes = 0;               // in texts
  size_t left_out = 0;            // lines, since the last text that was taken
  std::string problem;
  bool ends = false;
};

namespace {

size_t lines_in(const std::string& text) {
  return std::max<size_t>(1, static_cast<size_t>(std::count(text.begin(), text.end(), '\n')));
}

/// The reason why `text` cannot be written; empty: it is written. Waits for the reader.
std::string write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd room = {file, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return std::strerror(errno);
    }
  }
  return "";
}

}  // namespace

QueuedWriter::QueuedWriter(int file, std::string name, size_t limit)
    : state_(std::make_shared<State>(file, std::move(name), limit)) {
  std::thread([state = state_] { run(state); }).detach();
}

QueuedWriter::~QueuedWriter() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
}

void QueuedWriter::run(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->ends || !state->texts.empty(); });
    if (state->texts.empty()) {
      return;
    }
    const std::string& text = state->texts.front();  // add() moves no element of the queue
    lock.unlock();
    const std::string problem = write_all(state->file, text);
    lock.lock();
    state->bytes -= text.size();
    state->texts.pop_front();
    if (!problem.empty()) {
      state->problem = problem;
      state->texts.clear();
      state->bytes = 0;
    }
    state->changed.notify_all();
    if (!problem.empty()) {
      return;
    }
  }
}

void QueuedWriter::add(std::string text) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->problem.empty() || text.empty()) {
    return;
  }
  if (state_->bytes + text.size() > state_->limit) {
    state_->left_out += lines_in(text);
    return;
  }
  if (state_->left_out > 0) {
    text = "lockstep: " + std::to_string(std::exchange(state_->left_out, 0)) +
           " lines are left out here: who reads " + state_->name + " is too slow\n" + text;
  }
  state_->bytes += text.size();
  state_->texts.push_back(std::move(text));
  state_->changed.notify_all();
}

std::string QueuedWriter::problem() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->problem;
}

size_t QueuedWriter::waiting() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->bytes;
}

bool QueuedWriter::wait(std::chrono::milliseconds time) const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return state_->changed.wait_for(lock, time, [&] { return state_->texts.empty(); });
}

}  // namespace lockstep::launcher
