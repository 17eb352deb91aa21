#pragma once

#include <lockstep/runtime/runtime.h>

#include <string>

namespace lockstep::c {

/// Parses an option text to RuntimeOptions. Throws Error as set_options().
RuntimeOptions runtime_options(const std::string& text);

}  // namespace lockstep::c
