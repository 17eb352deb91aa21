#include <fcntl.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/trainer/impl/log_file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

namespace lockstep::detail {
namespace {

constexpr char kJsonBegin[] = "{\"update\":";

/// The number at the beginning of a row, if there is one.
std::optional<int64_t> update_of(const std::string& line) {
  const bool is_json = line.rfind(kJsonBegin, 0) == 0;
  const char* begin = line.c_str() + (is_json ? sizeof(kJsonBegin) - 1 : 0);
  char* end = nullptr;
  const int64_t update = std::strtoll(begin, &end, 10);
  return end != begin ? std::optional<int64_t>(update) : std::nullopt;
}

/// The whole lines of `text` that belong to updates up to `update`.
std::string lines_until(const std::string& text, int64_t update) {
  std::string kept;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end + 1 - begin);
    if (update_of(line).value_or(update) <= update) {
      kept += line;
    }
    begin = end + 1;
  }
  return kept;
}

std::string quoted_for_csv(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char letter : text) {
    quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  }
  return quoted + "\"";
}

std::string printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

bool write_all(int descriptor, const std::string& record) {
  for (size_t done = 0; done < record.size();) {
    const ssize_t wrote = ::write(descriptor, record.data() + done, record.size() - done);
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      return false;
    }
    done += static_cast<size_t>(wrote);
  }
  return true;
}

}  // namespace

LogFile::LogFile(const std::string& path) : path_(snapshot::absolute_path(path)) {
  open();
  LOCKSTEP_CHECK(file_.is_open(), path_, ": cannot be written: ", std::strerror(errno),
                 "; name another folder for the log");
}

void LogFile::open() {
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
}

bool LogFile::is_empty() const {
  struct stat status = {};
  return fstat(file_.number(), &status) == 0 && status.st_size == 0;
}

void LogFile::append(const std::string& record) {
  const off_t end = lseek(file_.number(), 0, SEEK_END);
  if (write_all(file_.number(), record)) {
    if (lost_ > 0) {
      std::cerr << path_ << ": is written again; " << lost_ << " records are missing" << std::endl;
    }
    lost_ = 0;
    return;
  }
  const std::string reason = std::strerror(errno);
  // A partial record would spoil the next one.
  const bool whole = end >= 0 && ftruncate(file_.number(), end) == 0;
  if (lost_++ == 0) {
    std::cerr << path_ << ": cannot be written: " << reason
              << "; training goes on, and records are "
              << "missing here until writing is possible again"
              << (whole ? "" : "; the last one may be incomplete") << std::endl;
  }
}

std::string LogFile::keep_until(int64_t update) {
  struct stat status = {};
  if (fstat(file_.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return "";  // a pipe or a device keeps nothing
  }
  std::ifstream file(path_, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  const std::string kept = lines_until(all, update);
  if (kept.size() == all.size()) {
    return "";
  }
  const std::string written = path_ + ".new";
  std::ofstream output(written, std::ios::binary | std::ios::trunc);
  output << kept;
  output.close();
  if (!output || std::rename(path_.c_str(), (path_ + ".aside").c_str()) != 0 ||
      std::rename(written.c_str(), path_.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(written.c_str());
    return reason;
  }
  open();
  return file_.is_open() ? "" : std::strerror(errno);
}

std::string csv_rows(int64_t update, double time, const LogValues& values) {
  std::string rows;
  for (const auto& [name, value] : values) {
    rows += std::to_string(update) + "," + printed("%.3f", time) + "," + quoted_for_csv(name) +
            "," + printed("%.17g", value) + "\n";
  }
  return rows;
}

std::string json_row(int64_t update, double time, const LogValues& values) {
  nlohmann::ordered_json row;
  row["update"] = update;
  row["time"] = time;
  for (const auto& [name, value] : values) {
    row[name] = value;
  }
  // A name that is not UTF-8 must not end training.
  return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::detail
