#include "machine/visible_gpus.h"

#include <fcntl.h>
#include <lockstep/collectives/impl/cuda_driver.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>

namespace lockstep::launcher {
namespace {

using Clock = std::chrono::steady_clock;

/// The answer of the child: a number of GPUs, an error, and why there is no GPU. A driver that has
/// none for this process is no problem.
std::string answer_of(const std::string& library) {
  constexpr int no_device = 100;
  const detail::CudaDriver driver = detail::ask_cuda_driver(library);
  std::ostringstream answer;
  answer << driver.devices << " " << driver.error << " "
         << (driver.error == no_device ? "" : driver.problem);
  return answer.str();
}

/// Reads `answers` to its end; empty if that takes longer than the deadline.
std::optional<std::string> read_all(int answers, Clock::time_point deadline) {
  std::string text;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd watched{answers, POLLIN, 0};
    if (left.count() <= 0) {
      return std::nullopt;
    }
    if (poll(&watched, 1, static_cast<int>(left.count())) <= 0) {
      continue;
    }
    char part[256];
    const ssize_t size = read(answers, part, sizeof part);
    if (size <= 0) {
      return text;
    }
    text.append(part, static_cast<size_t>(size));
  }
}

}  // namespace

VisibleGpus ask_driver(const std::string& library, std::chrono::milliseconds deadline) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return {0, "no process can be started to ask " + library};
  }
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return {0, "no process can be started to ask " + library};
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string answer = answer_of(library);
    const ssize_t written = write(ends[1], answer.data(), answer.size());
    _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  const auto answer = read_all(ends[0], Clock::now() + deadline);
  close(ends[0]);
  if (!answer) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, WNOHANG);  // a driver that hangs in the kernel does not die
    return {0, library + " hangs: no answer for " + std::to_string(deadline.count()) + " ms"};
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (answer->empty()) {
    return {0, WIFSIGNALED(status)
                   ? library + " was ended by signal " + std::to_string(WTERMSIG(status))
                   : library + " ended the process that asked it"};
  }
  VisibleGpus gpus;
  std::istringstream words(*answer);
  words >> gpus.count >> gpus.error;
  words.get();
  std::getline(words, gpus.problem);
  return gpus;
}

const VisibleGpus& visible_gpus() {
  static const VisibleGpus gpus = ask_driver("libcuda.so.1", std::chrono::seconds(60));
  return gpus;
}

}  // namespace lockstep::launcher
