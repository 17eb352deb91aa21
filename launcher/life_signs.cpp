#include "life_signs.h"

#include <lockstep/collectives/core/life_sign.h>

#include <cstdlib>

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
    case LifeSign::exit_code:
      fails_ = true;
      exit_code_ = std::atoi(word.c_str() + 1);
      return;
    case LifeSign::snapshot:
      snapshot_ = word.substr(1);
      return;
  }
}

}  // namespace lockstep::launcher
