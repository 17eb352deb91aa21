#include "cause/job_output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "rank/terminal_columns.h"

namespace lockstep::launcher {
namespace {

constexpr size_t shown_lines = 10;
constexpr size_t kept_lines = 60;
constexpr size_t kept_bytes = 1 << 16;    // of a line
constexpr size_t longest_line = 1 << 20;  // bytes; a longer one is shown and kept in pieces
constexpr auto held_for = std::chrono::seconds(3);

/// True for "frame #12: at::_ops::addmm::call(...) + 0x1b5 (0x7f... in libtorch_cpu.so)" and for
/// the line that LibTorch writes before the first.
bool is_of_backtrace(const std::string& line) {
  return line.rfind("frame #", 0) == 0 || line.rfind("Exception raised from ", 0) == 0;
}

/// True for "[node1][[123,1],0][btl_tcp_proc.c:266:...] ...", which Open MPI's library writes into
/// the output of its rank.
bool is_of_open_mpi(const std::string& line) {
  const size_t end = line.find_first_of(" ]");
  return line.rfind('[', 0) == 0 && end != std::string::npos && line.compare(end, 3, "][[") == 0;
}

bool begins_message(const std::string& line, int rank) {
  const std::string name = "rank " + std::to_string(rank);
  return line.rfind(name + ": ", 0) == 0 || line.rfind(name + " of ", 0) == 0 ||
         line.rfind("terminate called", 0) == 0;
}

bool is_ours(const std::string& name) {
  const bool is_log = name.rfind("rank-", 0) == 0 && name.size() > 9 &&
                      name.compare(name.size() - 4, 4, ".log") == 0;
  return is_log || name == "failure.json";
}

}  // namespace

JobOutput::JobOutput(std::ostream& out, std::ostream& error, OutputOptions options)
    : out_(out), error_(error), options_(std::move(options)) {
  if (options_.log_dir.empty()) {
    return;
  }
  std::error_code failure;
  std::filesystem::create_directories(options_.log_dir, failure);
  if (failure) {
    throw std::runtime_error("cannot make the log folder " + options_.log_dir + ": " +
                             failure.message());
  }
  if (access(options_.log_dir.c_str(), W_OK) != 0) {
    throw std::runtime_error("cannot write to the log folder " + options_.log_dir + ": " +
                             std::strerror(errno));
  }
}

void JobOutput::add(const RankLine& line) {
  using Kind = RankLine::Kind;
  if (line.kind != Kind::line && line.kind != Kind::partial && line.kind != Kind::redraw) {
    return;
  }
  std::string& beginning = beginnings_[{line.rank, line.is_error}];
  beginning += line.text;
  if (line.kind == Kind::partial && beginning.size() < longest_line) {
    return;
  }
  const std::string text = std::exchange(beginning, {});
  if (line.kind != Kind::redraw) {
    print(line, text, false);
    keep(line.rank, text);
  } else if (options_.terminal) {
    print(line, text, true);
  }
}

void JobOutput::add_other(const std::string& line, bool is_error) {
  if (!is_error || options_.verbose) {
    clear_redrawn();
    (is_error ? error_ : out_) << line << "\n" << std::flush;
  } else {
    held_.emplace_back(Clock::now() + held_for, line);
  }
}

std::optional<JobOutput::Clock::time_point> JobOutput::tick() {
  while (!held_.empty() && Clock::now() >= held_.front().first) {
    clear_redrawn();
    error_ << held_.front().second << "\n" << std::flush;
    held_.pop_front();
  }
  return held_.empty() ? std::nullopt : std::make_optional(held_.front().first);
}

void JobOutput::release(bool show) {
  for (const auto& [due, line] : held_) {
    if (show) {
      error_ << line << "\n";
    }
  }
  error_ << std::flush;
  held_.clear();
}

void JobOutput::clear_redrawn() {
  if (redrawn_) {
    out_ << "\r\x1b[K" << std::flush;
    redrawn_ = false;
  }
}

void JobOutput::print(const RankLine& line, const std::string& text, bool redraw) {
  if (!options_.shown_ranks.empty() && options_.shown_ranks.count(line.rank) == 0) {
    return;
  }
  clear_redrawn();
  const std::string tagged =
      (options_.tag ? "[" + std::to_string(line.rank) + "] " : std::string()) + text;
  if (redraw) {  // some terminals begin a new line after the last column
    out_ << (options_.columns ? fit_columns(tagged, options_.columns() - 1) : tagged) << std::flush;
  } else {
    (line.is_error ? error_ : out_) << tagged << "\n" << std::flush;
  }
  redrawn_ = redraw;
}

std::vector<std::string> JobOutput::last_lines(int rank) const {
  const auto kept = kept_.find(rank);
  if (kept == kept_.end()) {
    return {};
  }
  const std::deque<std::string>& lines = kept->second;
  size_t first = lines.size() - std::min(lines.size(), shown_lines);
  for (size_t i = lines.size(); i-- > 0;) {
    if (begins_message(lines[i], rank)) {
      first = std::min(first, i);
      break;
    }
  }
  return {lines.begin() + static_cast<std::ptrdiff_t>(first), lines.end()};
}

std::vector<std::string> JobOutput::comparable_lines(int rank) const {
  std::vector<std::string> lines = last_lines(rank);
  const std::string own = "rank " + std::to_string(rank) + ": ";
  for (std::string& line : lines) {
    if (line.rfind(own, 0) == 0) {
      line.erase(0, own.size());
    }
  }
  return lines;
}

std::string JobOutput::log_path(int rank) const {
  return options_.log_dir.empty() ? ""
                                  : options_.log_dir + "/rank-" + std::to_string(rank) + ".log";
}

void JobOutput::keep(int rank, const std::string& text) {
  if (!is_of_backtrace(text) && !is_of_open_mpi(text)) {
    std::deque<std::string>& lines = kept_[rank];
    lines.push_back(text.size() <= kept_bytes ? text : text.substr(0, kept_bytes) + " ...");
    if (lines.size() > kept_lines) {
      lines.pop_front();
    }
  }
  if (!options_.log_dir.empty()) {
    log(rank, text);
  }
}

void JobOutput::log(int rank, const std::string& text) {
  std::ofstream& file = logs_[rank];
  errno = 0;
  if (!file.is_open()) {
    file.open(log_path(rank));
  }
  file << text << "\n" << std::flush;
  if (!file && !log_failed_) {
    const int reason = errno;
    log_failed_ = true;
    clear_redrawn();
    error_ << "lockstep: cannot write " << log_path(rank)
           << (reason != 0 ? std::string(": ") + std::strerror(reason) : "")
           << "; the log files are cut here, the job goes on" << std::endl;
  }
}

void set_old_logs_aside(const std::string& log_dir) {
  if (log_dir.empty() || !std::filesystem::is_directory(log_dir)) {
    return;
  }
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(log_dir)) {
    if (is_ours(entry.path().filename().string())) {
      old.push_back(entry.path());
    }
  }
  if (old.empty()) {
    return;
  }
  int number = 1;
  std::filesystem::path aside;
  while (std::filesystem::exists(aside = std::filesystem::path(log_dir) /
                                         ("attempt-" + std::to_string(number)))) {
    ++number;
  }
  std::error_code error;
  std::filesystem::create_directory(aside, error);
  for (const std::filesystem::path& path : old) {
    if (!error) {
      std::filesystem::rename(path, aside / path.filename(), error);
    }
  }
  if (error) {
    throw std::runtime_error("cannot move the logs of the attempt before to " + aside.string() +
                             ": " + error.message() + "; give another --log-dir");
  }
}

}  // namespace lockstep::launcher
