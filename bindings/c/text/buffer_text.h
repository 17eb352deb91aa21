#pragma once

#include <lockstep/inputs/sample_buffer.h>

#include <string>

namespace lockstep::c {

/// The SampleBufferOptions of an option text. Throws Error for what set_options() refuses.
SampleBufferOptions buffer_options(const std::string& text);

}  // namespace lockstep::c
