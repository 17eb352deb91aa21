#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Formats text in aligned columns, ASCII only. For start-up summaries and results.
///
///   std::cout << lockstep::Table({"result", "value"}).row({"accuracy", "0.891"}).text();
///
/// Columns whose cells are all numbers are right-aligned. Rows may have different numbers of cells.
/// A plain value.
class Table {
 public:
  explicit Table(std::vector<std::string> header = {}) : header_(std::move(header)) {}

  Table& row(std::vector<std::string> cells);
  /// All lines, each with a line end.
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

/// Formats a number with four digits, integers in full: "0.4126", "65536", "1.2e-05".
std::string format_number(double value);

}  // namespace lockstep
