#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>

#include "job/queued_writer.h"

namespace lockstep::launcher {

/// While it exists, std::cout and std::cerr write through queues, so that the launcher serves
/// signals, deadlines and failures whatever the reader of its output does. Streams that are one
/// file share a queue, which keeps the order. A reader of standard output that has gone is told
/// once on standard error. Threads: one.
class JobStreams {
 public:
  static constexpr auto kPatience = std::chrono::seconds(5);
  JobStreams();
  /// Restores the streams, after finish(kPatience) if nobody has called finish(). Drops what is
  /// still in the queues.
  ~JobStreams();
  JobStreams(const JobStreams&) = delete;
  JobStreams& operator=(const JobStreams&) = delete;

  /// Waits until all output is read, or a signal asks the launcher to end. `patience`: the longest
  /// time without a byte that is read; empty: any.
  void finish(std::optional<std::chrono::milliseconds> patience);

 private:
  class Buffer;
  void look_at_reader();

  std::shared_ptr<QueuedWriter> out_writer_;
  std::shared_ptr<QueuedWriter> error_writer_;
  std::unique_ptr<Buffer> out_;
  std::unique_ptr<Buffer> error_;
  std::streambuf* out_before_;
  std::streambuf* error_before_;
  bool is_finished_ = false;
  bool is_told_ = false;  // that the reader of standard output has gone
};

}  // namespace lockstep::launcher
