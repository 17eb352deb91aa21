#pragma once

#include <lockstep/inputs/sample_buffer.h>

#include <string>

namespace lockstep::c {

/// Parses an option text to SampleBufferOptions. Throws Error as set_options().
SampleBufferOptions buffer_options(const std::string& text);

}  // namespace lockstep::c
