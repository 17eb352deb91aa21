#include <lockstep/collectives/check.h>
#include <lockstep/runtime/local_updates.h>

namespace lockstep {

void LocalUpdates::validate() const {
  LOCKSTEP_CHECK(updates_ >= 1, "LocalUpdates.updates must be >= 1, is ", updates_);
  LOCKSTEP_CHECK(outer_lr_ > 0.0, "LocalUpdates.outer_lr must be > 0, is ", outer_lr_);
  LOCKSTEP_CHECK(outer_momentum_ >= 0.0 && outer_momentum_ < 1.0,
                 "LocalUpdates.outer_momentum must be >= 0 and < 1, is ", outer_momentum_);
  LOCKSTEP_CHECK(!outer_nesterov_ || outer_momentum_ > 0.0,
                 "LocalUpdates.outer_nesterov needs an outer_momentum > 0");
}

std::string LocalUpdates::describe() const {
  return c10::str("LocalUpdates ", updates_, " outer_lr ", outer_lr_, " outer_momentum ",
                  outer_momentum_, outer_nesterov_ ? " nesterov" : "",
                  average_moments_ ? " average_moments" : "");
}

}  // namespace lockstep
