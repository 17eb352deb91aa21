#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launcher {

/// Blocks the signals that a ChildProcess reports, so none is lost before it exists. Call first in
/// main.
void block_signals();

/// A program in a process group of its own, with both its output streams in our hands.
///
/// Its standard output is a terminal, as under mpirun, so that C programs write line by line; its
/// standard input is ours unless that is a terminal. It gets SIGTERM when this process dies.
/// Threads: one.
class ChildProcess {
 public:
  /// Throws std::runtime_error when it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  using Bytes = std::function<void(bool is_error_stream, std::string_view bytes)>;
  /// Called for each SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 that we get.
  using Signal = std::function<void(int signal)>;
  /// Called again and again; returns when to be called next at the latest.
  using Tick = std::function<std::optional<std::chrono::steady_clock::time_point>()>;
  /// Hands on output and signals until the child has ended; returns its exit code, 128 + n for
  /// signal n.
  int run(const Bytes& on_bytes, const Signal& on_signal, const Tick& tick);

  /// To the program, or to all of its process group.
  void send(int signal, bool to_group);

 private:
  void read_some(int& fd, const Bytes& on_bytes);
  void drain(const Bytes& on_bytes);
  std::optional<int> reap();

  pid_t pid_ = -1;
  int out_ = -1;
  int error_ = -1;
  int signals_ = -1;
};

}  // namespace lockstep::launcher
