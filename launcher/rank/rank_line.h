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
    began = 'b',    // text is the process number of the rank's wrapper and the host's name
    word = 'w',     // a life sign of the program (collectives/impl/life_sign.h)
    halted = 'h',   // stopped by the signal with this number, such as SIGSTOP; 0: it goes on
    early = 'e',    // ended with code 0 though its runtime had not; text is the code to end with
  };
  int rank = 0;
  Kind kind = Kind::line;
  std::string text;
  bool is_error = false;  // of standard error
};

/// One line that starts with a byte no text starts with, so it stands out among mpirun's own.
std::string encode(const RankLine& line);
/// Nothing for any other text. `text` is without its line end.
std::optional<RankLine> decode(const std::string& text);

}  // namespace lockstep::launcher
