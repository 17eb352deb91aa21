#include "rank/terminal_columns.h"

#include <fcntl.h>
#include <locale.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lockstep::launcher {
namespace {

constexpr int usual_columns = 80;
constexpr int tab_columns = 8;

/// Bytes of the escape sequence that the text begins with.
size_t escape_size(std::string_view text) {
  const char kind = text.size() > 1 ? text[1] : '\0';
  size_t end = 2;
  if (kind == '[') {  // "\x1b[32m"
    while (end < text.size() && (text[end] < '@' || text[end] > '~')) {
      ++end;
    }
    ++end;
  } else if (kind == ']') {  // a title or a link, to "\a" or "\x1b\\"
    end = std::min(text.find('\a'), text.find("\x1b\\", end));
    end = end < text.size() && text[end] == '\a' ? end + 1 : end + 2;
  }
  return end < 2 ? text.size() : std::min(end, text.size());
}

/// Reads UTF-8 in this thread, whatever the user's locale is.
class Utf8 {
 public:
  Utf8() : utf8_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(uselocale(utf8_)) {}
  ~Utf8() {
    uselocale(before_);
    if (utf8_ != nullptr) {
      freelocale(utf8_);
    }
  }
  Utf8(const Utf8&) = delete;
  Utf8& operator=(const Utf8&) = delete;

 private:
  locale_t utf8_;
  locale_t before_;
};

}  // namespace

int columns_of(int descriptor) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int columns_of_output() {
  if (const int columns = columns_of(STDOUT_FILENO); columns > 0) {
    return columns;
  }
  const char* given = std::getenv("COLUMNS");
  const int columns = given != nullptr ? std::atoi(given) : 0;
  return columns > 0 ? columns : usual_columns;
}

int columns_of_launcher() {
  const std::string parent = "/proc/" + std::to_string(getppid());
  std::error_code error;
  if (std::filesystem::equivalent("/proc/self/exe", parent + "/exe", error)) {
    return columns_of(STDOUT_FILENO);  // the launcher started us
  }
  // Started by mpirun, whose standard output is the launcher's pseudo-terminal. Ours is made by
  // mpirun and keeps the size at the start.
  const std::string path = parent + "/fd/1";
  struct stat info = {};
  const bool may_be_terminal = stat(path.c_str(), &info) == 0 && S_ISCHR(info.st_mode);
  const detail::Descriptor terminal(
      may_be_terminal ? open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC) : -1);
  return columns_of(terminal.number());
}

std::string fit_columns(std::string_view line, int columns) {
  const Utf8 locale;
  std::string kept;
  int width = 0;
  for (size_t at = 0, size = 0; at < line.size(); at += size) {
    const std::string_view rest = line.substr(at);
    if (rest.front() == '\x1b') {
      size = escape_size(rest);
      kept += rest.substr(0, size);
      continue;
    }
    wchar_t character = 0;
    mbstate_t state = {};
    size = mbrtowc(&character, rest.data(), rest.size(), &state);
    const bool is_utf8 = size <= rest.size();
    size = is_utf8 ? std::max<size_t>(size, 1) : 1;  // 0 is the size of a NUL
    width += !is_utf8             ? 1
             : character == L'\t' ? tab_columns - width % tab_columns
                                  : std::max(wcwidth(character), 0);
    if (width > columns) {
      width = columns + 1;  // drops everything that follows
      continue;
    }
    kept += rest.substr(0, size);
  }
  return kept;
}

}  // namespace lockstep::launcher
