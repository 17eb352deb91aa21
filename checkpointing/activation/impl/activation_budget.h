#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>
#include <string>

namespace lockstep {

/// How many bytes of activations a chain may keep: unlimited (the default), a number of bytes,
/// least or automatic. The least budget is that of the plan that keeps the fewest bytes. An
/// automatic budget measures nothing and divides the chain into as many segments as the square root
/// of the number of stages. As text: "8 GiB", "900 MB", "1048576", "least", "automatic". Throws
/// lockstep::Error for other texts and for budgets below one byte.
class ActivationBudget {
 public:
  ActivationBudget() = default;
  ActivationBudget(int64_t bytes);            // NOLINT(google-explicit-constructor)
  ActivationBudget(const std::string& text);  // NOLINT(google-explicit-constructor)
  ActivationBudget(const char* text);         // NOLINT(google-explicit-constructor)

  bool is_unlimited() const noexcept { return bytes_ == unlimited; }
  bool is_automatic() const noexcept { return bytes_ == automatic; }
  bool is_least() const noexcept { return bytes_ == least; }
  /// Undefined for an unlimited, least or automatic budget.
  int64_t bytes() const noexcept { return bytes_; }
  std::string text() const;

 private:
  static constexpr int64_t unlimited = 0;
  static constexpr int64_t automatic = -1;
  static constexpr int64_t least = -2;
  int64_t bytes_ = unlimited;
};

/// How many bytes training may use: unlimited (the default) or a number of bytes. As text: "8 GiB",
/// "900 MB", "1048576". Throws lockstep::Error for other texts and for budgets below one byte.
class MemoryBudget {
 public:
  MemoryBudget() = default;
  MemoryBudget(int64_t bytes);            // NOLINT(google-explicit-constructor)
  MemoryBudget(const std::string& text);  // NOLINT(google-explicit-constructor)
  MemoryBudget(const char* text);         // NOLINT(google-explicit-constructor)

  bool is_unlimited() const noexcept { return bytes_ == 0; }
  /// Undefined for an unlimited budget.
  int64_t bytes() const noexcept { return bytes_; }
  std::string text() const;

 private:
  int64_t bytes_ = 0;
};

/// Formats a number of bytes for messages, such as "93.6 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace lockstep
