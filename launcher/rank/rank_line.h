#pragma once

#include <optional>
#include <string>

namespace lockstep::launcher {

/// A message of a rank's wrapper to the launcher, through mpirun: output, a life sign or an end.
struct RankLine {
  enum class Kind : char {      // capital letters: those of LifeSign, within a life sign, are small
    line = '.',                 // a whole line, or the end of one
    partial = '+',              // the beginning of a long line
    redraw = 'R',               // a line that ends with a carriage return: a progress bar
    status = 'X',               // text is the exit code
    ended_after_request = 'A',  // the same for a rank that was asked to stop
    began = 'B',      // text is the process number of the rank's wrapper and the host's name
    job = 'J',        // text is Open MPI's number of the job, in hex
    life_sign = 'W',  // of the program (collectives/impl/life_sign.h)
    suspended = 'S',  // text is the signal, such as SIGSTOP; 0: it continues
    early = 'E',      // ended with code 0 before its runtime; text is the code to return
  };
  int rank = 0;
  Kind kind = Kind::line;
  std::string text;
  bool is_error = false;  // from standard error
};

/// One line. Its first byte does not occur in text, which distinguishes it from lines of mpirun.
std::string encode(const RankLine& line);
/// Empty for any other text. `text`: without its line end.
std::optional<RankLine> decode(const std::string& text);

}  // namespace lockstep::launcher
