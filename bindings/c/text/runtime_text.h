#pragma once

#include <lockstep/runtime/runtime.h>

#include <string>

namespace lockstep::c {

/// The RuntimeOptions of an option text. Throws Error for what set_options() refuses.
RuntimeOptions runtime_options(const std::string& text);

}  // namespace lockstep::c
