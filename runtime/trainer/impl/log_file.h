#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/descriptor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Names and values of one row of a log.
using LogValues = std::vector<std::pair<std::string, double>>;

/// A file to which whole records are appended, each with one write. A record that cannot be
/// written, for example because the disk is full, is left out as a whole and never an error:
/// standard error gets a line that names file and reason, and another one when records are written
/// again. Ranks: local. Threads: one.
class LogFile {
 public:
  /// Creates the file, or opens it at its end. Throws Error with path and reason.
  explicit LogFile(const std::string& path);

  void append(const std::string& record);
  bool is_empty() const;
  /// For a file whose lines begin with an update, as CSV and JSONL rows do: removes the rows of
  /// later updates, and a last line that is not complete. Lines without a number stay. What the
  /// file held before is kept as PATH.aside. Returns the reason if this is not possible, else "".
  std::string keep_until(int64_t update);

 private:
  void open();

  std::string path_;
  Descriptor file_;
  int64_t lost_ = 0;  // records since the last one that was written
};

/// One line of CSV for each value: update,time,name,value. `time` in seconds since 1970.
std::string csv_rows(int64_t update, double time, const LogValues& values);
constexpr char kCsvHeader[] = "update,time,name,value\n";

/// One line with a JSON object: {"update":1200,"time":...,"loss":0.25}. NaN and inf become null.
std::string json_row(int64_t update, double time, const LogValues& values);

}  // namespace lockstep::detail
