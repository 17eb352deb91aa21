#pragma once

#include <optional>
#include <string>

namespace lockstep::launcher {

/// What one rank printed, or how it ended, on its way to the launcher through mpirun.
struct RankLine {
  enum class Kind : char {
    line = '.',     // a whole line, or the end of one
    partial = '+',  // the beginning of a long line
    redraw = 'r',   // ended by a carriage return: a progress bar
    status = 'x',   // text is the exit code
    stopped = 's',  // the same, of a rank that was asked to stop
  };
  int rank = 0;
  Kind kind = Kind::line;
  std::string text;
};

/// One line that starts with a byte no text starts with, so it stands out among mpirun's own.
std::string encode(const RankLine& line);
/// Nothing for any other text. `text` is without its line end.
std::optional<RankLine> decode(const std::string& text);

}  // namespace lockstep::launcher
