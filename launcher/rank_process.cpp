#include "rank_process.h"

#include <csignal>
#include <utility>

#include "line_splitter.h"

namespace lockstep::launcher {
namespace {

RankLine::Kind kind_of(char line_end) {
  return line_end == '\n'   ? RankLine::Kind::line
         : line_end == '\r' ? RankLine::Kind::redraw
                            : RankLine::Kind::partial;
}

}  // namespace

int run_rank(int rank, const std::vector<std::string>& program, StopLadder& ladder,
             const std::function<void(const std::vector<RankLine>&)>& on_lines) {
  ChildProcess child(program);
  LineSplitter streams[2];
  std::vector<RankLine> lines;
  bool stopped = false;
  const auto keep = [&](const std::string& text, char line_end) {
    lines.push_back({rank, kind_of(line_end), text});
  };
  const auto send = [&](int signal) { child.send(signal, signal != SIGUSR1); };
  const int code = child.run(
      [&](bool is_error, std::string_view bytes) {
        streams[is_error].add(bytes, keep);
        on_lines(std::exchange(lines, {}));
      },
      [&](int signal) {
        stopped = true;
        if (signal == SIGUSR1 || signal == SIGUSR2) {
          child.send(signal, false);
        } else {
          ladder.ask(signal, send);
        }
      },
      [&] { return ladder.tick(send); });
  for (LineSplitter& stream : streams) {
    stream.finish(keep);
  }
  lines.push_back(
      {rank, stopped ? RankLine::Kind::stopped : RankLine::Kind::status, std::to_string(code)});
  on_lines(lines);
  return code;
}

}  // namespace lockstep::launcher
