#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::launcher {

/// Divides a stream of bytes into lines.
class LineSplitter {
 public:
  using OnLine = std::function<void(const std::string& text, char kind)>;

  /// A line of more than `max_bytes` is passed in parts.
  explicit LineSplitter(size_t max_bytes = 2048) : max_bytes_(max_bytes) {}

  /// Calls on_line(text, kind) for each line (without its end). kind: '\n' for a complete line,
  /// '\r' for text that the next line overwrites, '+' for the beginning of a line that is too long.
  template <typename OnLine>
  void add(std::string_view bytes, OnLine on_line) {
    for (const char c : bytes) {
      if (c == '\n') {
        emit('\n', on_line);
      } else if (returned_ && !line_.empty()) {
        emit('\r', on_line);
      }
      returned_ = c == '\r';
      if (c != '\n' && c != '\r') {
        line_ += c;
      }
      if (line_.size() == max_bytes_) {
        emit('+', on_line);
      }
    }
  }
  /// The same for a last line without an end.
  template <typename OnLine>
  void finish(OnLine on_line) {
    if (!line_.empty()) {
      emit('\n', on_line);
    }
  }

 private:
  template <typename OnLine>
  void emit(char kind, OnLine on_line) {
    on_line(line_, kind);
    line_.clear();
  }

  size_t max_bytes_;
  std::string line_;
  bool returned_ = false;
};

}  // namespace lockstep::launcher
