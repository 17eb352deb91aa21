#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::detail {

/// Owns an open file descriptor. The destructor closes it and keeps errno. Threads: one.
class Descriptor {
 public:
  /// `number`: negative for one that could not be opened.
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (is_open()) {
      const int reason = errno;
      ::close(number_);
      errno = reason;
    }
  }

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }
  /// Gives up ownership: the caller must close the descriptor.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace lockstep::detail
