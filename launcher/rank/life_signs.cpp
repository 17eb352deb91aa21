#include "rank/life_signs.h"

namespace lockstep::launcher {

void LifeSigns::add(const std::string& word) {
  using detail::LifeSign;
  if (word.empty()) {
    return;
  }
  switch (static_cast<LifeSign>(word[0])) {
    case LifeSign::starting:
      stage_ = Stage::starting;
      return;
    case LifeSign::up:
      stage_ = Stage::up;
      return;
    case LifeSign::leaving:
      stage_ = Stage::leaving;
      return;
    case LifeSign::left:
      stage_ = Stage::left;
      return;
    case LifeSign::failing:
      fails_ = true;
      return;
    case LifeSign::waited:
      if (!waited_ || waited_->ranks.empty()) {
        waited_ = detail::parse_wait_sign(word.substr(1));
      }
      return;
    case LifeSign::stuck:
      is_stuck_ = true;
      [[fallthrough]];
    case LifeSign::ends:
      fails_ = true;
      end_ = detail::parse_end_sign(word.substr(1));
      return;
    case LifeSign::snapshot:
      snapshot_ = word.substr(1);
      return;
  }
}

bool LifeSigns::ends_like(const LifeSigns& other) const {
  return end_.code != 0 && end_.code == other.end_.code && end_.text == other.end_.text;
}

}  // namespace lockstep::launcher
