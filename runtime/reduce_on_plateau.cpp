#include <lockstep/collectives/check.h>
#include <lockstep/runtime/reduce_on_plateau.h>

namespace lockstep {

void ReduceOnPlateau::validate() const {
  LOCKSTEP_CHECK(factor_ > 0.0 && factor_ < 1.0, "ReduceOnPlateau.factor must be > 0 and < 1, is ",
                 factor_);
  LOCKSTEP_CHECK(patience_ >= 0, "ReduceOnPlateau.patience must be >= 0, is ", patience_);
  LOCKSTEP_CHECK(threshold_ >= 0.0, "ReduceOnPlateau.threshold must be >= 0, is ", threshold_);
  LOCKSTEP_CHECK(cooldown_ >= 0, "ReduceOnPlateau.cooldown must be >= 0, is ", cooldown_);
  LOCKSTEP_CHECK(min_lr_ >= 0.0, "ReduceOnPlateau.min_lr must be >= 0, is ", min_lr_);
  LOCKSTEP_CHECK(eps_ >= 0.0, "ReduceOnPlateau.eps must be >= 0, is ", eps_);
}

std::string ReduceOnPlateau::describe() const {
  return c10::str("ReduceOnPlateau factor ", factor_, " patience ", patience_,
                  mode_ ? (*mode_ == Mode::min ? " mode min" : " mode max") : "", " threshold ",
                  threshold_, threshold_mode_ == Threshold::rel ? " rel" : " abs", " cooldown ",
                  cooldown_, " min_lr ", min_lr_, " eps ", eps_);
}

}  // namespace lockstep
