#include "start/ask_hosts.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <sstream>
#include <thread>

#include "rank/rank_line.h"

extern char** environ;

namespace lockstep::launcher {
namespace {

using Clock = std::chrono::steady_clock;

/// The query of a host: its process and the output of that.
struct Question {
  std::string host;
  pid_t process = -1;
  int output = -1;
  std::string text;
};

Question begin(const std::string& host, std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  Question question{host, -1, -1, ""};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return question;
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  if (posix_spawnp(&question.process, argv[0], &files, &attributes, argv.data(), environ) != 0) {
    question.process = -1;
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  question.output = ends[0];
  return question;
}

/// False at the end of the output.
bool read_some(Question& question) {
  char bytes[4096];
  const ssize_t size = read(question.output, bytes, sizeof bytes);
  question.text.append(bytes, size > 0 ? static_cast<size_t>(size) : 0);
  return size > 0;
}

/// The host's own name, in the first message of exec-rank.
std::optional<std::string> answer_in(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto report = decode(line);
    if (report && report->kind == RankLine::Kind::began) {
      return report->text.substr(report->text.find(' ') + 1);
    }
  }
  return std::nullopt;
}

/// Signals are blocked in this process; pending ones are left to their reader.
bool is_asked_to_stop() {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1}) {
    if (sigismember(&waiting, signal) == 1) {
      return true;
    }
  }
  return false;
}

/// Waits for a killed process for a limited time, since it may hang in the system.
void reap(pid_t process) {
  const auto limit = Clock::now() + std::chrono::seconds(2);
  while (waitpid(process, nullptr, WNOHANG) == 0 && Clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

std::map<std::string, std::string> ask_hosts(
    const std::vector<std::string>& hosts,
    const std::function<std::vector<std::string>(const std::string& host)>& command, int seconds) {
  std::vector<Question> questions;
  for (const std::string& host : hosts) {
    questions.push_back(begin(host, command(host)));
  }
  const auto limit = Clock::now() + std::chrono::seconds(seconds);
  for (Question& question : questions) {
    while (question.output >= 0 && !answer_in(question.text) && !is_asked_to_stop()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now());
      pollfd watched = {question.output, POLLIN, 0};
      const int wait_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 200));
      const int ready = poll(&watched, 1, wait_ms);
      if (ready == 0 && left.count() > 0) {
        continue;
      }
      if (ready == 0 || !read_some(question)) {
        break;
      }
    }
  }
  std::map<std::string, std::string> answers;
  for (Question& question : questions) {
    if (question.process > 0) {
      kill(-question.process, SIGKILL);
      reap(question.process);
    }
    if (question.output >= 0) {
      close(question.output);
    }
    if (const auto answer = answer_in(question.text)) {
      answers[question.host] = *answer;
    }
  }
  return answers;
}

}  // namespace lockstep::launcher
