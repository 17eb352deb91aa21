#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launcher {

/// Blocks the signals that a ChildProcess reports, so that none is lost before it exists. Call it
/// first in main. `runs_job`: without a job only SIGCHLD is blocked, so that Ctrl-C ends the
/// command.
void block_signals(bool runs_job);

/// Runs a program in its own process group and reads its output streams.
///
/// Its standard output is a pseudo-terminal, as under mpirun, so that C programs write line by
/// line. It inherits standard input, unless that is a terminal.
/// Threads: one.
class ChildProcess {
 public:
  /// `death_signal`: sent to the program when this process dies. `has_life_signs`: the program can
  /// send life signs (collectives/impl/life_sign.h). `columns`: of its terminal; 0: unknown. Throws
  /// std::runtime_error if the program cannot be started.
  explicit ChildProcess(const std::vector<std::string>& arguments, int death_signal = SIGTERM,
                        bool has_life_signs = false, int columns = 0);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  using Bytes = std::function<void(bool is_error_stream, std::string_view bytes)>;
  struct Events {
    Bytes on_bytes;
    /// Called for each SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2, SIGTSTP and
    /// SIGCONT.
    std::function<void(int signal)> on_signal = [](int) {};
    /// Called repeatedly; returns the latest time of the next call.
    std::function<std::optional<std::chrono::steady_clock::time_point>()> tick = [] {
      return std::nullopt;
    };
    std::function<void(const std::string& word)> on_word = [](const std::string&) {};
    /// `signal`, such as SIGSTOP, has suspended the program; 0: it continues.
    std::function<void(int signal)> on_suspend = [](int) {};
  };
  /// Calls the functions of `events` until the program has ended; returns its exit code, 128 + n
  /// for signal n.
  int run(const Events& events);

  pid_t pid() const { return pid_; }

  /// Changes the columns of its terminal.
  void set_columns(int columns);

  /// Sends a signal to the program, or to its process group.
  void send(int signal, bool to_group);

 private:
  void read_some(int& fd, const Bytes& on_bytes);
  void read_words(const Events& events);
  void drain(const Events& events);
  std::optional<int> reap(const Events& events);

  pid_t pid_ = -1;
  int out_ = -1;
  int error_ = -1;
  int signals_ = -1;
  int life_signs_ = -1;
  std::string word_;
};

/// Runs a program and returns its standard output. A signal that comes meanwhile is kept for the
/// next ChildProcess. `limit`: the time after which the program is killed; empty: none.
std::string output_of(const std::vector<std::string>& arguments,
                      std::optional<std::chrono::seconds> limit = std::nullopt);

}  // namespace lockstep::launcher
