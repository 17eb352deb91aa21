#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::detail {

/// Images with more pixels are refused.
constexpr int64_t kMostPixels = int64_t{1} << 26;

/// Return uint8 [height, width, 3]. Throw Error (exit code data) that names `name`, or Error (exit
/// code environment) if this build has no library for the format.
at::Tensor decode_jpeg(std::string_view bytes, const std::string& name);
at::Tensor decode_png(std::string_view bytes, const std::string& name);

}  // namespace lockstep::detail
