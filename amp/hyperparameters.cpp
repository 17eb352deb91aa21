#include <lockstep/amp/impl/hyperparameters.h>
#include <lockstep/collectives/check.h>

#include <cmath>

namespace lockstep::amp {

void check_not_negative(const char* optimizer, const char* option, double value) {
  LOCKSTEP_CHECK(std::isfinite(value) && value >= 0.0, optimizer, ": ", option, " is ", value,
                 ", it must be finite and not negative");
}

void check_below_one(const char* optimizer, const char* option, double value) {
  LOCKSTEP_CHECK(value >= 0.0 && value < 1.0, optimizer, ": ", option, " is ", value,
                 ", it must be at least 0 and below 1");
}

void check_positive_fp32(const char* optimizer, const char* option, double value) {
  const float narrow = static_cast<float>(value);
  LOCKSTEP_CHECK(std::isfinite(narrow) && narrow > 0.0F, optimizer, ": ", option, " is ", value,
                 ", it must be positive and finite in fp32");
}

void check_that(bool condition, const std::string& message) {
  LOCKSTEP_CHECK(condition, message);
}

}  // namespace lockstep::amp
