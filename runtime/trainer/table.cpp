#include <lockstep/runtime/table.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace lockstep {
namespace {

struct Column {
  size_t width = 0;
  bool numbers = true;
};

bool is_number(const std::string& cell) {
  char* end = nullptr;
  std::strtod(cell.c_str(), &end);
  return !cell.empty() && *end == '\0';
}

void widen(std::vector<Column>& columns, const std::vector<std::string>& cells) {
  columns.resize(std::max(columns.size(), cells.size()));
  for (size_t i = 0; i < cells.size(); ++i) {
    columns[i].width = std::max(columns[i].width, cells[i].size());
  }
}

std::string line(const std::vector<Column>& columns, const std::vector<std::string>& cells) {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(columns[i].width - cells[i].size(), ' ');
    text += i == 0 ? "" : "  ";
    text += columns[i].numbers ? padding + cells[i] : cells[i] + padding;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

Table& Table::row(std::vector<std::string> cells) {
  rows_.push_back(std::move(cells));
  return *this;
}

std::string Table::text() const {
  std::vector<Column> columns;
  widen(columns, header_);
  for (const auto& cells : rows_) {
    widen(columns, cells);
    for (size_t i = 0; i < cells.size(); ++i) {
      columns[i].numbers = columns[i].numbers && is_number(cells[i]);
    }
  }
  std::string text;
  if (!header_.empty()) {
    std::vector<std::string> rules;
    for (size_t i = 0; i < header_.size(); ++i) {
      rules.emplace_back(columns[i].width, '-');
    }
    text += line(columns, header_) + line(columns, rules);
  }
  for (const auto& cells : rows_) {
    text += line(columns, cells);
  }
  return text;
}

std::string format_number(double value) {
  char text[32] = {};
  const bool whole = std::floor(value) == value && std::abs(value) < 1e15;
  std::snprintf(text, sizeof(text), whole ? "%.0f" : "%.4g", value);
  return text;
}

}  // namespace lockstep
