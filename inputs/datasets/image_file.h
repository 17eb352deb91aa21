#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace lockstep {

/// Reads a JPEG or PNG image; the first bytes of the file decide which. Returns the pixels, uint8,
/// [channels, height, width]. With 3 channels, grey images are repeated; with 1 channel, colours
/// become grey with the weights 0.299, 0.587, 0.114. Transparency is dropped, 16 bits become 8,
/// CMYK becomes RGB as Pillow does it, and colour profiles are ignored. What libjpeg only warns of
/// (extraneous bytes, unknown versions) is no damage, missing data is. An image has at most 2^26
/// pixels, and a JPEG image at most 100 scans.
/// Ranks: local. Threads: any.
/// Throws Error (exit code data) that names the file: missing, neither JPEG nor PNG, truncated or
/// damaged, too large. Throws Error (exit code environment) that names the package to install if
/// lockstep was built without libjpeg-turbo or libpng. Throws Error unless channels is 1 or 3.
at::Tensor read_image(const std::string& path, int channels = 3);

/// The same for an image in memory. `name` stands for the file in errors.
at::Tensor decode_image(std::string_view bytes, const std::string& name, int channels = 3);

}  // namespace lockstep
