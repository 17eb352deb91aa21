#include "rank/exec_rank.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>
#include <utility>

#include "machine/allocation.h"
#include "rank/rank_process.h"

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;

// mpirun ends ranks with SIGTERM, and SIGKILL 0.9 s later.
constexpr auto patience = milliseconds(600);

bool reader_is_gone() {
  pollfd standard_error = {STDERR_FILENO, 0, 0};
  return poll(&standard_error, 1, 0) > 0 && (standard_error.revents & POLLERR) != 0;
}

/// Waits until the reader of standard error has read everything, or has ended.
void wait_until_read() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  int waiting = 0;
  while (ioctl(STDERR_FILENO, FIONREAD, &waiting) == 0 && waiting > 0 && !reader_is_gone() &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// Writes to standard error in pieces that mpirun does not cut: it forwards each read of at most
/// 4096 bytes, so the pipe may hold no more than that.
void write_piece(std::string_view piece) {
  wait_until_read();
  while (!piece.empty()) {
    const ssize_t written = write(STDERR_FILENO, piece.data(), piece.size());
    if (written < 0) {
      return;  // the launcher has ended, and mpirun will end this process
    }
    piece.remove_prefix(static_cast<size_t>(written));
  }
}

void write_lines(const std::vector<RankLine>& lines) {
  std::string piece;
  for (const RankLine& line : lines) {
    const std::string text = encode(line);
    if (piece.size() + text.size() > 4096) {
      write_piece(std::exchange(piece, {}));
    }
    piece += text;
  }
  write_piece(piece);
}

}  // namespace

int exec_rank(const std::vector<std::string>& program) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (reader_is_gone()) {  // mpirun has ended before the line above was read
    return 128 + SIGTERM;
  }
  StopLadder ladder({{SIGTERM, patience}, {SIGKILL, patience}});
  const int code =
      run_rank({rank_in_environment(), ranks_in_environment() > 1}, program, ladder, write_lines);
  wait_until_read();
  return code;
}

}  // namespace lockstep::launcher
