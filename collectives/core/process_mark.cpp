#include <lockstep/collectives/impl/process_mark.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

namespace lockstep::detail {
namespace {

constexpr size_t kBootDigits = 32;

/// What /proc/PID/stat says.
struct Status {
  int process = 0;
  char state = '?';
  uint64_t start = 0;
};

std::optional<Status> status_of(const std::string& folder) {
  std::string line;
  std::getline(std::ifstream(folder + "/stat"), line);
  const size_t name_end = line.rfind(')');  // a program's name may hold anything
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  Status status;
  std::istringstream(line) >> status.process;
  std::istringstream words(line.substr(name_end + 1));
  std::string skipped;
  words >> status.state;
  for (int field = 4; field < 22; ++field) {
    words >> skipped;
  }
  return words >> status.start ? std::make_optional(status) : std::nullopt;
}

std::string boot_of(const std::string& processes) {
  std::string boot;
  std::getline(std::ifstream(processes + "/sys/kernel/random/boot_id"), boot);
  boot.erase(std::remove(boot.begin(), boot.end(), '-'), boot.end());
  return boot;
}

/// Empty unless the folder shows the namespace of this process.
std::optional<uint64_t> own_name_space(const std::string& processes) {
  std::array<char, 64> link = {};
  const std::string path = processes + "/self/ns/pid";
  const ssize_t size = readlink(path.c_str(), link.data(), link.size() - 1);
  const auto self = status_of(processes + "/self");
  uint64_t number = 0;
  std::istringstream words(size > 5 ? link.data() + 5 : "");  // behind "pid:["
  return self && self->process == getpid() && words >> number ? std::make_optional(number)
                                                              : std::nullopt;
}

/// Reads a number in its shortest form, and `end` behind it unless that is 0.
template <typename Number>
bool take(std::string_view& text, Number& number, char end) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto size = static_cast<size_t>(rest - text.data());
  const bool is_short = error == std::errc() && text[0] != '-' && (size == 1 || text[0] != '0');
  if (!is_short || (end == 0 ? size != text.size() : size == text.size() || *rest != end)) {
    return false;
  }
  text.remove_prefix(size + (end == 0 ? 0 : 1));
  return true;
}

}  // namespace

std::optional<ProcessMark> mark_of(int process, const std::string& processes) {
  const auto name_space = own_name_space(processes);
  const auto status = status_of(processes + "/" + std::to_string(process));
  const std::string boot = boot_of(processes);
  if (!name_space || !status || boot.size() != kBootDigits) {
    return std::nullopt;
  }
  return ProcessMark{boot, *name_space, process, status->start};
}

Life life_of(const ProcessMark& mark, const std::string& processes) {
  if (mark.boot != boot_of(processes) || own_name_space(processes) != mark.name_space) {
    return Life::unseen;
  }
  const auto status = status_of(processes + "/" + std::to_string(mark.process));
  const bool lives =
      status && status->start == mark.start && status->state != 'Z' && status->state != 'X';
  return lives ? Life::alive : Life::dead;
}

bool is_stopped(int process, const std::string& processes) {
  const auto status = status_of(processes + "/" + std::to_string(process));
  return status && (status->state == 'T' || status->state == 't');
}

std::string to_text(const ProcessMark& mark) {
  return mark.boot + "-" + std::to_string(mark.name_space) + "-" + std::to_string(mark.process) +
         "-" + std::to_string(mark.start);
}

std::optional<ProcessMark> parse_process_mark(std::string_view text) {
  ProcessMark mark;
  mark.boot = text.substr(0, kBootDigits);
  if (text.size() <= kBootDigits || text[kBootDigits] != '-' ||
      mark.boot.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return std::nullopt;
  }
  text.remove_prefix(kBootDigits + 1);
  const bool is_whole = take(text, mark.name_space, '-') && take(text, mark.process, '-') &&
                        mark.process > 0 && take(text, mark.start, 0);
  return is_whole ? std::make_optional(mark) : std::nullopt;
}

std::string own_mark() {
  const auto mark = mark_of(getpid());
  return mark ? to_text(*mark) : "unknown-" + std::to_string(getpid());
}

}  // namespace lockstep::detail
