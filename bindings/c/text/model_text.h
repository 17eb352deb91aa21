#pragma once

#include <lockstep/inputs/exported_module.h>

#include <string>

namespace lockstep::c {

/// Parses an option text to ExportedModuleOptions. Throws Error as set_options().
ExportedModuleOptions model_options(const std::string& text);

}  // namespace lockstep::c
