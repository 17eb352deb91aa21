#include <fcntl.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <lockstep/runtime/progress.h>
#include <sys/ioctl.h>
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
constexpr double plain_seconds = 60.0;
constexpr double redraw_seconds = 0.1;
constexpr size_t longest_bar = 24;
constexpr size_t shortest_bar = 4;
constexpr int usual_columns = 80;

/// File descriptor 1 of the parent process, mpirun.
std::string output_of_launcher() {
  return "/proc/" + std::to_string(getppid()) + "/fd/1";
}

bool launcher_prints_to_terminal() {
  char target[64] = {};
  const std::string link = output_of_launcher();
  if (readlink(link.c_str(), target, sizeof(target) - 1) < 0) {
    return false;
  }
  const std::string name = target;
  return name.rfind("/dev/pts/", 0) == 0 || name.rfind("/dev/tty", 0) == 0;
}

bool is_launched() {
  return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr;
}

bool is_terminal() {
  if (const char* asked = std::getenv("LOCKSTEP_PROGRESS")) {
    return std::string(asked) == "bar";
  }
  return isatty(STDOUT_FILENO) == 1 && (!is_launched() || launcher_prints_to_terminal());
}

int columns_of(int descriptor) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// `lockstep run` keeps the size of a rank's pseudo-terminal right; that of mpirun has the size
/// that mpirun's own terminal had at the start, or none.
int columns_of_mpirun() {
  if (std::getenv("LOCKSTEP_LIFE_SIGNS") != nullptr || !is_launched() ||
      !launcher_prints_to_terminal()) {
    return 0;
  }
  const detail::Descriptor terminal(
      open(output_of_launcher().c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  return columns_of(terminal.number());
}

int columns_of_terminal() {
  for (const int columns : {columns_of_mpirun(), columns_of(STDOUT_FILENO)}) {
    if (columns > 0) {
      return columns;
    }
  }
  const char* given = std::getenv("COLUMNS");
  const int columns = given != nullptr ? std::atoi(given) : 0;
  return columns > 0 ? columns : usual_columns;
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;  // UTF-8
}

size_t columns_in(const std::string& text) {
  return text.size() -
         static_cast<size_t>(std::count_if(text.begin(), text.end(), continues_character));
}

std::string cut(std::string text, size_t columns) {
  while (columns_in(text) > columns) {
    while (continues_character(text.back())) {
      text.pop_back();
    }
    text.pop_back();
  }
  return text;
}

/// " [####....]" of at most `columns` columns; empty if these are too few.
std::string bar(double share, size_t columns) {
  const size_t frame = sizeof(" []") - 1;
  const size_t width = std::min(columns > frame ? columns - frame : 0, longest_bar);
  if (width < shortest_bar) {
    return "";
  }
  const auto filled = static_cast<size_t>(static_cast<double>(width) * share);
  return " [" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
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
  return {prints ? &std::cout : nullptr, prints && is_terminal(), clock, columns_of_terminal};
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
  const std::string text = line(done, now - start_, values());
  shown_ = done;
  shown_at_ = now;
  if (output_.terminal) {
    redraw(text, done >= total_);
  } else {
    *output_.stream << text << "\n" << std::flush;
  }
}

Progress& Progress::log_every(int64_t iterations) {
  LOCKSTEP_CHECK(iterations >= 1, "Progress: log_every is ", iterations, ", expected 1 or more");
  log_every_ = iterations;
  return *this;
}

Progress& Progress::begin_at(int64_t done) {
  LOCKSTEP_CHECK(done >= 0, "Progress: begin_at is ", done, ", expected 0 or more");
  before_ = done;
  return *this;
}

void Progress::redraw(const std::string& line, bool last) {
  const size_t width = columns_in(line);
  const size_t wiped = std::min(width_, limit());  // the rest of a longer line
  *output_.stream << "\r" << line << std::string(wiped > width ? wiped - width : 0, ' ')
                  << (last ? "\n" : "") << std::flush;
  width_ = last ? 0 : width;
}

bool Progress::is_due(int64_t done, double now) const {
  if (shown_ < 0 || (done >= total_ && shown_ < total_)) {
    return true;
  }
  if (shown_ >= total_) {
    return false;
  }
  return output_.terminal ? now - shown_at_ >= redraw_seconds : is_plain_line_due(done, now);
}

bool Progress::is_plain_line_due(int64_t done, double now) const {
  if (log_every_ > 0) {
    return done / log_every_ > shown_ / log_every_;
  }
  return done * plain_lines / total_ > shown_ * plain_lines / total_ ||
         (done > shown_ && now - shown_at_ >= plain_seconds);
}

std::string Progress::line(int64_t done, double seconds, const Values& values) const {
  const double share = std::min(static_cast<double>(done) / static_cast<double>(total_), 1.0);
  const double rate = seconds > 0.0 ? static_cast<double>(done - before_) / seconds : 0.0;
  const std::string begin = label_ + print(" %3.0f%%", std::floor(100.0 * share));
  std::string end = "  " + std::to_string(done) + "/" + std::to_string(total_);
  end += "  " + print("%.1f", rate) + " it/s";
  if (rate > 0.0) {
    end += done < total_ ? "  eta " + format_duration(static_cast<double>(total_ - done) / rate)
                         : "  in " + format_duration(seconds);
  }
  for (const auto& [name, value] : values) {
    end += "  " + name + " " + format_number(value);
  }
  if (!output_.terminal) {
    return begin + end;
  }
  const size_t most = limit();
  const size_t text = columns_in(begin) + columns_in(end);
  return cut(begin + bar(share, most > text ? most - text : 0) + end, most);
}

/// Most columns of a line: one less than the terminal's, since some wrap in the last column.
size_t Progress::limit() const {
  const int columns = output_.columns ? output_.columns() : usual_columns;
  return static_cast<size_t>(std::max(columns - 1, 1));
}

}  // namespace lockstep
