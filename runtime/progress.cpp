#include <lockstep/collectives/error.h>
#include <lockstep/runtime/progress.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace lockstep {
namespace {

constexpr int64_t plain_lines = 20;
constexpr double redraw_seconds = 0.1;
constexpr int64_t bar_width = 24;

/// Whether file descriptor 1 of the parent process, mpirun, is a terminal.
bool launcher_prints_to_terminal() {
  char target[64] = {};
  const std::string link = "/proc/" + std::to_string(getppid()) + "/fd/1";
  if (readlink(link.c_str(), target, sizeof(target) - 1) < 0) {
    return false;
  }
  const std::string name = target;
  return name.rfind("/dev/pts/", 0) == 0 || name.rfind("/dev/tty", 0) == 0;
}

bool is_terminal() {
  if (const char* asked = std::getenv("LOCKSTEP_PROGRESS")) {
    return std::string(asked) == "bar";
  }
  const bool launched = std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMI_RANK");
  return isatty(STDOUT_FILENO) == 1 && (!launched || launcher_prints_to_terminal());
}

std::string print(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  char text[64];
  if (whole >= 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02d:%02d", static_cast<long long>(whole / 3600),
                  static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
  } else {
    std::snprintf(text, sizeof(text), "%d:%02d", static_cast<int>(whole / 60),
                  static_cast<int>(whole % 60));
  }
  return text;
}

}  // namespace

ProgressOutput ProgressOutput::standard(bool prints) {
  const auto clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return {prints ? &std::cout : nullptr, prints && is_terminal(), clock};
}

Progress::Progress(std::string label, int64_t total, bool prints)
    : Progress(std::move(label), total, ProgressOutput::standard(prints)) {}

Progress::Progress(std::string label, int64_t total, ProgressOutput output)
    : label_(std::move(label)), total_(total), output_(std::move(output)) {
  LOCKSTEP_CHECK(total >= 1, "Progress: total is ", total, ", expected 1 or more");
  start_ = output_.clock();
}

Progress::~Progress() {
  if (width_ > 0) {
    *output_.stream << "\n" << std::flush;
  }
}

void Progress::show(int64_t done, const Values& values) {
  show(done, [&] { return values; });
}

void Progress::show(int64_t done, const std::function<Values()>& values) {
  if (output_.stream == nullptr) {
    return;
  }
  const double now = output_.clock();
  if (!is_due(done, now)) {
    return;
  }
  std::string text = line(done, now - start_, values());
  shown_ = done;
  shown_at_ = now;
  if (!output_.terminal) {
    *output_.stream << text << "\n" << std::flush;
    return;
  }
  const size_t width = text.size();
  text.resize(std::max(width, width_), ' ');  // wipes the rest of a longer line
  width_ = width;
  *output_.stream << "\r" << text << std::flush;
}

bool Progress::is_due(int64_t done, double now) const {
  if (shown_ < 0 || (done >= total_ && shown_ < total_)) {
    return true;
  }
  return output_.terminal ? now - shown_at_ >= redraw_seconds
                          : done * plain_lines / total_ > shown_ * plain_lines / total_;
}

std::string Progress::line(int64_t done, double seconds, const Values& values) const {
  const double share = std::min(static_cast<double>(done) / static_cast<double>(total_), 1.0);
  const double rate = seconds > 0.0 ? static_cast<double>(done) / seconds : 0.0;
  std::string text = label_ + print(" %3.0f%%", std::floor(100.0 * share));
  if (output_.terminal) {
    const auto filled = static_cast<size_t>(static_cast<double>(bar_width) * share);
    text += " [" + std::string(filled, '#') + std::string(bar_width - filled, '.') + "]";
  }
  text += "  " + std::to_string(done) + "/" + std::to_string(total_);
  text += "  " + print("%.1f", rate) + " it/s";
  if (rate > 0.0) {
    text += done < total_ ? "  eta " + format_duration(static_cast<double>(total_ - done) / rate)
                          : "  in " + format_duration(seconds);
  }
  for (const auto& [name, value] : values) {
    text += "  " + name + " " + format_number(value);
  }
  return text;
}

std::string format_number(double value) {
  const bool whole = std::floor(value) == value && std::abs(value) < 1e15;
  return print(whole ? "%.0f" : "%.4g", value);
}

}  // namespace lockstep
