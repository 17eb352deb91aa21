#pragma once

#include <lockstep/collectives/check.h>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

/// The rows of a CSV file but the first, which names the columns. Fields in quotes may hold commas,
/// line breaks and doubled quotes.
inline std::vector<std::vector<std::string>> read_csv(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  LOCKSTEP_CHECK_CODE(file.good(), lockstep::ExitCode::data, path, ": cannot be opened");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::vector<std::string>> rows(1);
  std::string field;
  bool quoted = false;
  bool was_quoted = false;
  for (const char c : text) {
    if (c == '"') {
      quoted = !quoted;
      if (quoted && was_quoted) {
        field += '"';  // the second of two
      }
      was_quoted = true;
    } else if (quoted || (c != ',' && c != '\n' && c != '\r')) {
      field += c;
    } else if (c != '\r') {
      rows.back().push_back(std::move(field));
      field.clear();
      was_quoted = false;
      if (c == '\n') {
        rows.emplace_back();
      }
    }
  }
  LOCKSTEP_CHECK_CODE(!quoted, lockstep::ExitCode::data, path, ": a quote is not closed");
  if (!field.empty() || !rows.back().empty()) {
    rows.back().push_back(std::move(field));
  } else {
    rows.pop_back();
  }
  LOCKSTEP_CHECK_CODE(rows.size() > 1, lockstep::ExitCode::data, path, ": no rows");
  rows.erase(rows.begin());
  return rows;
}
