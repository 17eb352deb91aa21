#include "rank/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace lockstep::launcher {
namespace {

constexpr auto silence_limit = std::chrono::milliseconds(500);

sigset_t reported_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal :
       {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGCONT}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

struct Streams {
  int out = -1;
  int error = -1;
};

/// Runs in the child; only async-signal-safe calls.
[[noreturn]] void become(char* const* arguments, Streams streams, pid_t parent, int death_signal) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) {
    _exit(128 + SIGTERM);
  }
  if (isatty(STDIN_FILENO)) {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
  }
  dup2(streams.out, STDOUT_FILENO);
  dup2(streams.error, STDERR_FILENO);
  // mpirun signals the group of its child. What came before setpgid() is for the parent alone.
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP}) {
    struct sigaction ignored = {}, before = {};
    ignored.sa_handler = SIG_IGN;  // which discards a pending signal
    sigaction(each, &ignored, &before);
    sigaction(each, &before, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execvp(arguments[0], arguments);
  const char* reason = strerror(errno);
  for (const char* part :
       {"lockstep: cannot run ", static_cast<const char*>(arguments[0]), ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) {
      break;
    }
  }
  _exit(127);
}

}  // namespace

void block_signals(bool runs_job) {
  sigset_t signals = reported_signals();
  if (!runs_job) {
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, int death_signal,
                           bool has_life_signs, int columns) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);

  int child_out = -1;
  int error_pipe[2] = {-1, -1};
  termios raw = {};
  cfmakeraw(&raw);
  const winsize size = {0, static_cast<unsigned short>(columns), 0, 0};
  if (openpty(&out_, &child_out, nullptr, &raw, &size) != 0 || pipe(error_pipe) != 0) {
    fail("cannot make a pipe");
  }
  error_ = error_pipe[0];
  for (const int fd : {out_, error_, child_out, error_pipe[1]}) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  for (const int fd : {out_, error_}) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  int words[2] = {-1, -1};
  if (has_life_signs) {
    struct stat info = {};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, words) != 0 || fstat(words[1], &info) != 0) {
      fail("cannot make a socket");
    }
    life_signs_ = words[0];
    fcntl(life_signs_, F_SETFD, FD_CLOEXEC);
    fcntl(life_signs_, F_SETFL, O_NONBLOCK);
    const std::string name = std::to_string(words[1]) + ":" + std::to_string(info.st_ino);
    setenv("LOCKSTEP_LIFE_SIGNS", name.c_str(), /*overwrite=*/1);
  }
  const sigset_t signals = reported_signals();
  signals_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    become(argv.data(), {child_out, error_pipe[1]}, parent, death_signal);
  }
  if (has_life_signs) {
    close(words[1]);
    unsetenv("LOCKSTEP_LIFE_SIGNS");
  }
  close(child_out);
  close(error_pipe[1]);
  if (pid_ < 0 || signals_ < 0) {
    fail("cannot start " + arguments.front());
  }
  setpgid(pid_, pid_);  // in both processes, since either may run first
}

ChildProcess::~ChildProcess() {
  for (const int fd : {out_, error_, signals_, life_signs_}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

int ChildProcess::run(const Events& events) {
  using std::chrono::milliseconds;
  std::optional<int> code;
  while (!code) {
    int wait_ms = -1;
    if (const auto next = events.tick()) {
      const auto left = *next - std::chrono::steady_clock::now();
      wait_ms = static_cast<int>(
          std::max<int64_t>(0, 1 + std::chrono::duration_cast<milliseconds>(left).count()));
    }
    pollfd watched[] = {
        {signals_, POLLIN, 0}, {out_, POLLIN, 0}, {error_, POLLIN, 0}, {life_signs_, POLLIN, 0}};
    poll(watched, 4, wait_ms);
    read_words(events);
    read_some(out_, events.on_bytes);
    read_some(error_, events.on_bytes);
    signalfd_siginfo info = {};
    while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) {
        events.on_signal(static_cast<int>(info.ssi_signo));
      }
    }
    code = reap(events);
  }
  kill(-pid_, SIGKILL);  // processes that the program left behind
  drain(events);
  return *code;
}

/// Reads both streams to the end, within a time limit: a terminal delivers the last bytes a moment
/// after its writer has ended, and a process that left the group may keep a stream open for ever.
void ChildProcess::drain(const Events& events) {
  read_words(events);
  auto limit = std::chrono::steady_clock::now() + silence_limit;
  const Bytes hand_on = [&](bool is_error, std::string_view bytes) {
    events.on_bytes(is_error, bytes);
    limit = std::chrono::steady_clock::now() + silence_limit;
  };
  while ((out_ >= 0 || error_ >= 0) && std::chrono::steady_clock::now() < limit) {
    pollfd watched[] = {{out_, POLLIN, 0}, {error_, POLLIN, 0}};
    poll(watched, 2, 10);
    read_some(out_, hand_on);
    read_some(error_, hand_on);
  }
}

void ChildProcess::set_columns(int columns) {
  const winsize size = {0, static_cast<unsigned short>(columns), 0, 0};
  ioctl(out_, TIOCSWINSZ, &size);  // fails once the program has ended
}

void ChildProcess::send(int signal, bool to_group) {
  kill(to_group ? -pid_ : pid_, signal);
}

void ChildProcess::read_some(int& fd, const Bytes& on_bytes) {
  if (fd < 0) {
    return;
  }
  char bytes[4096];
  const ssize_t size = read(fd, bytes, sizeof(bytes));
  if (size > 0) {
    on_bytes(&fd == &error_, std::string_view(bytes, static_cast<size_t>(size)));
    return;
  }
  if (size == 0 || (errno != EAGAIN && errno != EINTR)) {  // a terminal ends with EIO
    close(fd);
    fd = -1;
  }
}

void ChildProcess::read_words(const Events& events) {
  char bytes[512];
  ssize_t size = 0;
  while (life_signs_ >= 0 && (size = read(life_signs_, bytes, sizeof(bytes))) > 0) {
    for (const char c : std::string_view(bytes, static_cast<size_t>(size))) {
      if (c == '\n') {
        events.on_word(word_);
        word_.clear();
      } else {
        word_ += c;
      }
    }
  }
  if (size == 0 && life_signs_ >= 0) {
    close(life_signs_);
    life_signs_ = -1;
  }
}

std::optional<int> ChildProcess::reap(const Events& events) {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED) != pid_) {
    return std::nullopt;
  }
  if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
    events.on_suspend(WIFSTOPPED(status) ? WSTOPSIG(status) : 0);
    return std::nullopt;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string output_of(const std::vector<std::string>& arguments,
                      std::optional<std::chrono::seconds> limit) {
  using Clock = std::chrono::steady_clock;
  std::string output;
  std::vector<int> came;
  ChildProcess child(arguments);
  ChildProcess::Events events;
  events.on_bytes = [&](bool is_error, std::string_view bytes) {
    output += is_error ? "" : std::string(bytes);
  };
  events.on_signal = [&](int signal) { came.push_back(signal); };
  const auto end = limit ? std::make_optional(Clock::now() + *limit) : std::nullopt;
  events.tick = [&]() -> std::optional<Clock::time_point> {
    if (end && Clock::now() >= *end) {
      child.send(SIGKILL, true);
      return std::nullopt;
    }
    return end;
  };
  child.run(events);
  for (const int signal : came) {
    kill(getpid(), signal);  // it is blocked, so it waits for its reader
  }
  return output;
}

}  // namespace lockstep::launcher
