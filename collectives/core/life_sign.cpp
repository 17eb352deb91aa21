#include <lockstep/collectives/impl/life_sign.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

namespace lockstep::detail {
namespace {

/// The launcher's socket; -1 without one. A descriptor with that number may be another file in a
/// program that a rank started: hence the inode.
int launchers_socket() {
  const char* text = std::getenv("LOCKSTEP_LIFE_SIGNS");
  int descriptor = -1;
  unsigned long long inode = 0;
  if (text == nullptr || std::sscanf(text, "%d:%llu", &descriptor, &inode) != 2) {
    return -1;
  }
  struct stat info = {};
  const bool is_it =
      fstat(descriptor, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == inode;
  if (is_it) {
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
  return is_it ? descriptor : -1;
}

// Limits of the two texts of a sign; a rank's wrapper forwards both in one piece.
constexpr size_t most_ranks_text = 1024;
constexpr size_t most_text = 1024;
constexpr int rank_limit = 1 << 20;

/// Reads a number at `at` and advances `at`; -1: there is none.
int read_number(const char*& at, const char* end) {
  int number = -1;
  const auto read = std::from_chars(at, end, number);
  at = read.ptr;
  return read.ec == std::errc() ? number : -1;
}

/// "0-2,5".
std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size() && text.size() < most_ranks_text;) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += (first == 0 ? "" : ",") + std::to_string(ranks[first]) +
            (last > first ? "-" + std::to_string(ranks[last]) : "");
    first = last + 1;
  }
  return text;
}

/// Reads such a list, up to a space or the end. Nothing if it is none.
std::optional<std::vector<int>> read_ranks(const char*& at, const char* end) {
  std::vector<int> ranks;
  while (at != end && *at != ' ') {
    const int first = read_number(at, end);
    const int last = at != end && *at == '-' ? read_number(++at, end) : first;
    const int least = ranks.empty() ? 0 : ranks.back() + 1;
    if (first < least || last < first || last >= rank_limit) {
      return std::nullopt;
    }
    for (int rank = first; rank <= last; ++rank) {
      ranks.push_back(rank);
    }
    at += at != end && *at == ',' ? 1 : 0;
  }
  return ranks;
}

}  // namespace

std::string to_text(const WaitSign& sign) {
  return list_of(sign.ranks) + " " + sign.collective.substr(0, most_text);
}

WaitSign parse_wait_sign(const std::string& text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  WaitSign sign;
  const auto ranks = read_ranks(at, end);
  if (ranks) {
    sign.ranks = *ranks;
    sign.collective.assign(at == end ? at : at + 1, end);
  }
  return sign;
}

std::string to_text(const EndSign& sign) {
  return std::to_string(sign.code) + (sign.is_shared ? "s" : "o") + list_of(sign.ranks) + " " +
         sign.text.substr(0, most_text);
}

EndSign parse_end_sign(const std::string& text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  EndSign sign;
  sign.code = std::max(0, read_number(at, end));
  sign.is_shared = at != end && *at == 's';
  at += at == end ? 0 : 1;
  const char* const begin = at;
  if (const auto ranks = read_ranks(at, end)) {
    sign.ranks = *ranks;
    sign.text.assign(at == end ? at : at + 1, end);
  } else {
    sign.text.assign(begin, end);
  }
  return sign;
}

void give(LifeSign sign, const std::string& text) {
  const int socket = launchers_socket();
  if (socket >= 0) {
    std::string line = static_cast<char>(sign) + text;
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');  // of one line
    line += '\n';
    send(socket, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

bool has_listener() {
  return launchers_socket() >= 0;
}

}  // namespace lockstep::detail
