#pragma once

#include <lockstep/amp/host_device.h>

namespace lockstep::amp {

/// What measuring adds to, one bucket after another.
struct MeasureTotals {
  double sum_squares = 0.0;
  double not_finite = 0.0;  // buckets with an element that is not
};

LOCKSTEP_HOST_DEVICE void add_bucket(MeasureTotals& totals, double sum_squares) {
  const bool finite = sum_squares - sum_squares == 0.0;
  totals.sum_squares += sum_squares;
  totals.not_finite += finite ? 0.0 : 1.0;
}

}  // namespace lockstep::amp
