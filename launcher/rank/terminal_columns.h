#pragma once

#include <string>
#include <string_view>

namespace lockstep::launcher {

/// Columns of the terminal that a file descriptor is; 0: it is none, or does not say.
int columns_of(int descriptor);

/// Columns of the terminal that standard output is, now; else those of COLUMNS; else 80.
int columns_of_output();

/// For the wrapper of a rank: the columns that the launcher leaves to a line of a rank. 0: they are
/// not known, since the output is no terminal, or the launcher is on another host.
int columns_of_launcher();

/// As much of a line, in UTF-8, as fits into so many columns. Escape sequences, such as colours,
/// take none and stay.
std::string fit_columns(std::string_view line, int columns);

}  // namespace lockstep::launcher
