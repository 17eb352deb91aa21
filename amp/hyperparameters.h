#pragma once

#include <lockstep/collectives/error.h>

#include <cmath>

namespace lockstep::amp {

/// Throws Error that names the optimizer and the option unless `value` is finite and at least 0.
inline void check_not_negative(const char* optimizer, const char* option, double value) {
  LOCKSTEP_CHECK(std::isfinite(value) && value >= 0.0, optimizer, ": ", option, " is ", value,
                 ", it must be finite and not negative");
}

/// Throws Error, as above, unless 0 <= value < 1.
inline void check_below_one(const char* optimizer, const char* option, double value) {
  LOCKSTEP_CHECK(value >= 0.0 && value < 1.0, optimizer, ": ", option, " is ", value,
                 ", it must be at least 0 and below 1");
}

/// Throws Error, as above, unless `value` is positive and finite in fp32.
inline void check_positive_fp32(const char* optimizer, const char* option, double value) {
  const float narrow = static_cast<float>(value);
  LOCKSTEP_CHECK(std::isfinite(narrow) && narrow > 0.0F, optimizer, ": ", option, " is ", value,
                 ", it must be positive and finite in fp32");
}

}  // namespace lockstep::amp
