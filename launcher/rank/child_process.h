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

/// Blocks the signals that a ChildProcess reports, so none is lost before it exists. Call first in
/// main.
void block_signals();

/// A program in a process group of its own, with both its output streams in our hands.
///
/// Its standard output is a terminal, as under mpirun, so that C programs write line by line; its
/// standard input is ours unless that is a terminal.
/// Threads: one.
class ChildProcess {
 public:
  /// `death_signal`: what the program gets when this process dies. `has_life_signs`: the program
  /// can send words to us (collectives/impl/life_sign.h). Throws std::runtime_error when it cannot
  /// be started. `columns`: of its terminal; 0: not known.
  explicit ChildProcess(const std::vector<std::string>& arguments, int death_signal = SIGTERM,
                        bool has_life_signs = false, int columns = 0);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  using Bytes = std::function<void(bool is_error_stream, std::string_view bytes)>;
  struct Events {
    Bytes on_bytes;
    /// Called for each SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 that we get.
    std::function<void(int signal)> on_signal = [](int) {};
    /// Called again and again; returns when to be called next at the latest.
    std::function<std::optional<std::chrono::steady_clock::time_point>()> tick = [] {
      return std::nullopt;
    };
    std::function<void(const std::string& word)> on_word = [](const std::string&) {};
    /// The program was stopped by `signal`, such as SIGSTOP; 0: it goes on.
    std::function<void(int signal)> on_halt = [](int) {};
  };
  /// Hands on what happens until the child has ended; returns its exit code, 128 + n for signal n.
  int run(const Events& events);

  pid_t pid() const { return pid_; }

  /// Changes the columns of its terminal.
  void set_columns(int columns);

  /// To the program, or to all of its process group.
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

}  // namespace lockstep::launcher
