#pragma once

#include "test_device.h"

#include <lockstep/amp/loss_scaler.h>

#include <string>
#include <vector>

namespace lockstep::testing {

/// The scale after each update of `pattern`: '1' is an overflow, '0' a clean update.
inline std::vector<float> scales(amp::LossScaler& scaler, const std::string& pattern) {
  std::vector<float> values;
  for (const char update : pattern) {
    scaler.update(update == '1');
    values.push_back(static_cast<float>(scaler.value()));
  }
  return values;
}

inline std::vector<float> scales(const amp::LossScalerOptions& options,
                                 const std::string& pattern) {
  amp::LossScaler scaler(options, device());
  return scales(scaler, pattern);
}

}  // namespace lockstep::testing
