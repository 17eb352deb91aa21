#pragma once

#include <lockstep/amp/impl/decision.h>

#include <functional>
#include <set>
#include <string>

namespace lockstep::pretend {

/// The functions of launch.h and row_launch.h that were called so far: "launch_decide".
std::set<std::string>& launches();

/// What a test makes the device's decision kernel leave besides; null: it leaves what it should.
std::function<void(amp::Decision&)>& wrong_decision();

}  // namespace lockstep::pretend
