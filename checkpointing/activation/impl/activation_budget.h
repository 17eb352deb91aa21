#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>
#include <string>

namespace lockstep {

/// How many bytes of activations a chain may keep: unlimited (the default), a number of bytes, or
/// automatic. An automatic budget measures nothing and divides the chain into as many segments as
/// the square root of the number of stages. As text: "8 GiB", "900 MB", "1048576", "automatic".
/// Throws lockstep::Error for other texts and for budgets below one byte.
class ActivationBudget {
 public:
  ActivationBudget() = default;
  ActivationBudget(int64_t bytes);            // NOLINT(google-explicit-constructor)
  ActivationBudget(const std::string& text);  // NOLINT(google-explicit-constructor)
  ActivationBudget(const char* text);         // NOLINT(google-explicit-constructor)

  bool is_unlimited() const noexcept { return bytes_ == unlimited; }
  bool is_automatic() const noexcept { return bytes_ == automatic; }
  /// Undefined for an unlimited or automatic budget.
  int64_t bytes() const noexcept { return bytes_; }
  std::string text() const;

 private:
  static constexpr int64_t unlimited = 0;
  static constexpr int64_t automatic = -1;
  int64_t bytes_ = unlimited;
};

/// Formats a number of bytes for messages, such as "93.6 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace lockstep
