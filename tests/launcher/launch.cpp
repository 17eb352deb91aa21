#include "launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace lockstep::testing {
namespace {

constexpr double limit_seconds = 60.0;
using Clock = std::chrono::steady_clock;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

pid_t start(const std::vector<std::string>& arguments, int out, int error) {
  std::vector<char*> argv = {const_cast<char*>(LOCKSTEP_COMMAND)};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return pid;
}

/// False at the end of the stream.
bool append(int fd, std::string& text) {
  char bytes[4096];
  const ssize_t size = read(fd, bytes, sizeof(bytes));
  text.append(bytes, size > 0 ? static_cast<size_t>(size) : 0);
  return size > 0;
}

}  // namespace

Launched launch(const std::vector<std::string>& arguments,
                const std::function<void(pid_t, const std::string&)>& meanwhile) {
  int out[2];
  int error[2];
  EXPECT_EQ(pipe2(out, O_CLOEXEC) + pipe2(error, O_CLOEXEC), 0);
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const pid_t pid = start(arguments, out[1], error[1]);
  close(out[1]);
  close(error[1]);
  Launched result;
  pollfd watched[] = {{out[0], POLLIN, 0}, {error[0], POLLIN, 0}};
  while (watched[0].fd >= 0 || watched[1].fd >= 0) {
    if (seconds() > limit_seconds) {
      ADD_FAILURE() << "killed after " << limit_seconds << " s";
      kill(pid, SIGKILL);
      break;
    }
    poll(watched, 2, 100);
    std::string* texts[] = {&result.out, &result.error};
    for (int i = 0; i < 2; ++i) {
      if (watched[i].revents != 0 && !append(watched[i].fd, *texts[i])) {
        watched[i].fd = -1;
      }
    }
    if (meanwhile) {
      meanwhile(pid, result.out);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  close(out[0]);
  close(error[0]);
  result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.seconds = seconds();
  return result;
}

std::vector<std::string> script(std::vector<std::string> options, const std::string& text) {
  options.insert(options.begin(), "run");
  options.insert(options.end(),
                 {"--", "/bin/sh", "-c", "RANK=${OMPI_COMM_WORLD_RANK:-0}; " + text});
  return options;
}

std::vector<std::string> signing(std::vector<std::string> options, const std::string& text) {
  options.insert(options.begin(), "run");
  options.insert(options.end(),
                 {"--", "/bin/bash", "-c",
                  "RANK=${OMPI_COMM_WORLD_RANK:-0}; sign() { for s in $*; do echo $s "
                  ">&${LOCKSTEP_LIFE_SIGNS%%:*}; done; }; " +
                      text});
  return options;
}

int processes_with(const std::string& text) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (std::isdigit(entry.path().filename().string()[0]) != 0 &&
        read_file(entry.path() / "cmdline").find(text) != std::string::npos) {
      ++found;
    }
  }
  return found;
}

bool all_gone(const std::string& text) {
  const auto limit = Clock::now() + std::chrono::seconds(30);
  while (processes_with(text) > 0) {
    if (Clock::now() > limit) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

std::string await(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) {
    text += "while [ ! -e " + file + " ]; do sleep 0.02; done; ";
  }
  return text;
}

std::string unique_word() {
  static int count = 0;
  return "lockstep_test_" + std::to_string(getpid()) + "_" + std::to_string(++count);
}

Folder::Folder() : path_("/tmp/lockstep_test_XXXXXX") {
  EXPECT_NE(mkdtemp(path_.data()), nullptr);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Folder::read(const std::string& name) const {
  return read_file(std::filesystem::path(path_) / name);
}

}  // namespace lockstep::testing
