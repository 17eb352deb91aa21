#include "exec_rank.h"

#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "rank_process.h"

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;

// mpirun ends ranks with SIGTERM, and SIGKILL 0.9 s later.
constexpr auto patience = milliseconds(600);

int rank_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name)) {
      return std::atoi(value);
    }
  }
  return 0;
}

/// Writes whole lines to standard error so that mpirun never cuts one: it forwards what one read
/// of at most 4096 bytes gives, so no more than that may wait in the pipe.
class LineChannel {
 public:
  void write(const std::string& lines) {
    wait_until_read();
    std::string_view left = lines;
    while (!left.empty()) {
      const ssize_t written = ::write(STDERR_FILENO, left.data(), left.size());
      if (written < 0) {
        return;  // the launcher is gone, and mpirun will end us
      }
      left.remove_prefix(static_cast<size_t>(written));
    }
  }

  void wait_until_read() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    int waiting = 0;
    while (ioctl(STDERR_FILENO, FIONREAD, &waiting) == 0 && waiting > 0 &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

}  // namespace

int exec_rank(const std::vector<std::string>& program) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  LineChannel channel;
  StopLadder ladder({{SIGTERM, patience}, {SIGKILL, patience}});
  const int code = run_rank(rank_from_environment(), program, ladder,
                            [&](const RankLine& line) { channel.write(encode(line)); });
  channel.wait_until_read();
  return code;
}

}  // namespace lockstep::launcher
