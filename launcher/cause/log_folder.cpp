#include "cause/log_folder.h"

#include <filesystem>
#include <stdexcept>
#include <vector>

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

bool is_ours(const std::string& name) {
  const bool is_log = name.rfind("rank-", 0) == 0 && name.size() > 9 &&
                      name.compare(name.size() - 4, 4, ".log") == 0;
  return is_log || name == "failure.json";
}

}  // namespace

void set_old_logs_aside(const std::string& log_dir) {
  if (log_dir.empty() || !fs::is_directory(log_dir)) {
    return;
  }
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(log_dir)) {
    if (is_ours(entry.path().filename().string())) {
      old.push_back(entry.path());
    }
  }
  if (old.empty()) {
    return;
  }
  int number = 1;
  fs::path aside;
  while (fs::exists(aside = fs::path(log_dir) / ("attempt-" + std::to_string(number)))) {
    ++number;
  }
  std::error_code error;
  fs::create_directory(aside, error);
  for (const fs::path& path : old) {
    if (!error) {
      fs::rename(path, aside / path.filename(), error);
    }
  }
  if (error) {
    throw std::runtime_error("cannot move the logs of the attempt before to " + aside.string() +
                             ": " + error.message() + "; give another --log-dir");
  }
}

}  // namespace lockstep::launcher
