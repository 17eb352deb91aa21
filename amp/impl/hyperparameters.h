#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>

namespace lockstep::amp {

/// Throws Error that names the optimizer and the option unless `value` is finite and at least 0.
void check_not_negative(const char* optimizer, const char* option, double value);

/// Throws Error, as above, unless 0 <= value < 1.
void check_below_one(const char* optimizer, const char* option, double value);

/// Throws Error, as above, unless `value` is positive and finite in fp32.
void check_positive_fp32(const char* optimizer, const char* option, double value);

/// Throws Error with this message if the condition does not hold.
void check_that(bool condition, const std::string& message);

}  // namespace lockstep::amp
