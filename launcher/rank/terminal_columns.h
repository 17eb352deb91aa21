#pragma once

#include <string>
#include <string_view>

namespace lockstep::launcher {

/// Columns of the terminal with this file descriptor; 0: no terminal, or unknown.
int columns_of(int descriptor);

/// Columns of standard output if it is a terminal; else COLUMNS; else 80.
int columns_of_output();

/// For the wrapper of a rank: the columns that the launcher has for a line of a rank. 0: unknown,
/// since the output is no terminal or the launcher is on another host.
int columns_of_launcher();

/// The beginning of a line of UTF-8 that fits into `columns`. Keeps escape sequences, such as
/// colours, which take no columns.
std::string fit_columns(std::string_view line, int columns);

}  // namespace lockstep::launcher
