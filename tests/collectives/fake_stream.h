#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::testing {

class FakeGraph;

/// A point on a stream. What was captured has no time of its own: nobody may ask.
struct FakeEvent {
  std::atomic<bool> reached{false};
  FakeGraph* graph = nullptr;  // the one that the point is part of
};

/// A device's stream as a thread: does what it is given, in order, later than the caller. While a
/// FakeGraph captures it, nothing is done.
class FakeStream {
 public:
  using Task = std::function<bool()>;  // asked again until it answers true

  FakeStream() : thread_([this] { work(); }) {}
  ~FakeStream() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  inline void put(Task task);
  void run(std::function<void()> task) {
    put([task = std::move(task)] {
      task();
      return true;
    });
  }
  /// A mark here, which others follow.
  inline std::shared_ptr<FakeEvent> marker();
  inline void follow(const std::shared_ptr<FakeEvent>& event);
  /// Null unless the stream is being captured.
  FakeGraph* graph() const { return graph_.load(); }
  /// Waits until all is done.
  void finish() {
    TORCH_CHECK(graph_ == nullptr, "the host waits for a stream that is being captured");
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty(); });
  }

 private:
  friend class FakeGraph;
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      if (tasks_.empty()) {
        changed_.wait(lock);
        continue;
      }
      Task& task = tasks_.front();  // stays where it is while others are added
      lock.unlock();
      const bool done = task();
      if (!done) {
        std::this_thread::yield();
      }
      lock.lock();
      if (done) {
        tasks_.pop_front();
        changed_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::atomic<FakeGraph*> graph_{nullptr};
  std::thread thread_;
};

/// Work of streams that is captured and run again, with the rules of a CUDA graph: a stream that
/// follows one that is captured is captured too, must have been followed back when the capture
/// ends, and may not follow what happens outside; meanwhile no host waits and nobody asks an event.
class FakeGraph {
 public:
  explicit FakeGraph(FakeStream& origin) : origin_(origin) {}
  FakeGraph(const FakeGraph&) = delete;
  FakeGraph& operator=(const FakeGraph&) = delete;

  /// What `work` throws goes on, and the graph is empty then.
  void capture(const std::function<void()>& work) {
    capturing_ = true;
    join(origin_);
    try {
      work();
    } catch (...) {
      leave();
      branches_.clear();
      throw;
    }
    leave();
    for (const auto& [stream, branch] : branches_) {
      TORCH_CHECK(stream == &origin_ || branch.joined == branch.steps.size(),
                  "a stream that was captured has not been joined");
    }
  }

  /// Gives everything to the origin once more.
  void launch() {
    std::map<FakeEvent*, std::shared_ptr<FakeEvent>> anew;
    for (auto& [stream, branch] : branches_) {
      for (const Step& step : branch.steps) {
        if (step.marks) {
          anew[step.marks.get()] = std::make_shared<FakeEvent>();
        }
      }
    }
    for (auto& [stream, branch] : branches_) {
      FakeStream& runs_on = stream == &origin_ ? origin_ : *branch.stand_in;
      for (const Step& step : branch.steps) {
        if (step.marks) {
          runs_on.run([event = anew[step.marks.get()]] { event->reached.store(true); });
        } else if (step.follows) {
          runs_on.put([event = anew[step.follows.get()]] { return event->reached.load(); });
        } else {
          runs_on.put(step.task);
        }
      }
    }
  }

 private:
  friend class FakeStream;
  struct Step {
    FakeStream::Task task;
    std::shared_ptr<FakeEvent> marks;
    std::shared_ptr<FakeEvent> follows;
  };
  struct Branch {
    std::vector<Step> steps;
    size_t joined = 0;  // of these steps others know that they are done
    std::unique_ptr<FakeStream> stand_in = std::make_unique<FakeStream>();
  };

  void join(FakeStream& stream) {
    stream.graph_ = this;
    branches_[&stream];
  }
  void leave() {
    capturing_ = false;
    for (const auto& [stream, branch] : branches_) {
      stream->graph_ = nullptr;
    }
  }
  void add(FakeStream& stream, Step step) {
    branches_.at(&stream).steps.push_back(std::move(step));
  }
  void joined(const std::shared_ptr<FakeEvent>& event) {
    for (auto& [stream, branch] : branches_) {
      for (size_t i = 0; i < branch.steps.size(); ++i) {
        if (branch.steps[i].marks == event) {
          branch.joined = std::max(branch.joined, i + 1);
        }
      }
    }
  }

  FakeStream& origin_;
  bool capturing_ = false;
  std::map<FakeStream*, Branch> branches_;
};

inline void FakeStream::put(Task task) {
  if (FakeGraph* graph = graph_.load()) {
    graph->add(*this, {std::move(task), {}, {}});
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

inline std::shared_ptr<FakeEvent> FakeStream::marker() {
  auto event = std::make_shared<FakeEvent>();
  event->graph = graph();
  if (event->graph != nullptr) {
    event->graph->add(*this, {{}, event, {}});
  } else {
    run([event] { event->reached.store(true); });
  }
  return event;
}

inline void FakeStream::follow(const std::shared_ptr<FakeEvent>& event) {
  if (graph() == nullptr && event->graph != nullptr && event->graph->capturing_) {
    event->graph->join(*this);
  }
  TORCH_CHECK(event->graph == graph(), "a stream follows into or out of a graph");
  if (event->graph != nullptr) {
    event->graph->joined(event);
    event->graph->add(*this, {{}, {}, event});
  } else {
    put([event] { return event->reached.load(); });
  }
}

}  // namespace lockstep::testing
