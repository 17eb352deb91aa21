#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// How many bytes of activations a chain may keep: none given (unlimited), a number, or automatic,
/// which measures nothing and divides the chain into as many regions as the square root of its
/// stages. As text: "8 GiB", "900 MB", "1048576", "automatic". Throws lockstep::Error for other
/// texts and for budgets below one byte.
class ActivationBudget {
 public:
  ActivationBudget() = default;
  ActivationBudget(int64_t bytes);            // NOLINT(google-explicit-constructor)
  ActivationBudget(const std::string& text);  // NOLINT(google-explicit-constructor)
  ActivationBudget(const char* text);         // NOLINT(google-explicit-constructor)

  bool is_unlimited() const noexcept { return bytes_ == unlimited; }
  bool is_automatic() const noexcept { return bytes_ == automatic; }
  /// Meaningless for an unlimited or automatic budget.
  int64_t bytes() const noexcept { return bytes_; }
  std::string text() const;

 private:
  static constexpr int64_t unlimited = 0;
  static constexpr int64_t automatic = -1;
  int64_t bytes_ = unlimited;
};

/// For people: "93.6 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace lockstep
