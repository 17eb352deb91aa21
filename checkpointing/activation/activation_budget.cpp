#include <lockstep/checkpointing/activation/impl/activation_budget.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace lockstep {

namespace {

constexpr std::array<std::pair<const char*, double>, 10> units = {{{"", 1.0},
                                                                   {"B", 1.0},
                                                                   {"KB", 1e3},
                                                                   {"MB", 1e6},
                                                                   {"GB", 1e9},
                                                                   {"TB", 1e12},
                                                                   {"KiB", 1024.0},
                                                                   {"MiB", 1048576.0},
                                                                   {"GiB", 1073741824.0},
                                                                   {"TiB", 1099511627776.0}}};

/// `what`: for the message; `others`: what else the text may be.
int64_t parse(const char* what, const std::string& text, const char* others) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  unit.erase(0, unit.find_first_not_of(' '));
  for (const auto& [name, bytes] : units) {
    if (end != text.c_str() && unit == name && number * bytes >= 1 && number * bytes < 9e18) {
      return static_cast<int64_t>(number * bytes);
    }
  }
  throw Error(c10::str(what, " '", text,
                       "': expected a positive number of bytes such as \"8 GiB\", \"900 MB\" or "
                       "\"1048576\"",
                       others));
}

}  // namespace

ActivationBudget::ActivationBudget(int64_t bytes) : bytes_(bytes) {
  LOCKSTEP_CHECK(bytes >= 1, "activation budget ", bytes, ": it must be at least one byte");
}

ActivationBudget::ActivationBudget(const std::string& text)
    : bytes_(text == "automatic" ? automatic
             : text == "least"
                 ? least
                 : parse("activation budget", text, ", or \"automatic\" or \"least\"")) {}

ActivationBudget::ActivationBudget(const char* text) : ActivationBudget(std::string(text)) {}

std::string ActivationBudget::text() const {
  return is_unlimited()   ? "unlimited"
         : is_automatic() ? "automatic"
         : is_least()     ? "least"
                          : bytes_text(bytes_);
}

MemoryBudget::MemoryBudget(int64_t bytes) : bytes_(bytes) {
  LOCKSTEP_CHECK(bytes >= 1, "memory budget ", bytes, ": it must be at least one byte");
}

MemoryBudget::MemoryBudget(const std::string& text) : bytes_(parse("memory budget", text, "")) {}

MemoryBudget::MemoryBudget(const char* text) : MemoryBudget(std::string(text)) {}

std::string MemoryBudget::text() const {
  return is_unlimited() ? "unlimited" : bytes_text(bytes_);
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> names = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < names.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 100 ? "%.3g %s" : "%.0f %s", value, names[unit]);
  return text.data();
}

}  // namespace lockstep
