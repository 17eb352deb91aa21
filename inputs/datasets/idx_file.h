#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/inputs/labelled_images.h>

#include <string>

namespace lockstep {

/// Reads a file in the IDX format (MNIST and similar datasets), plain or gzip. Shape and dtype
/// (uint8, int8, int16, int32, fp32, fp64) are those of the file.
/// Ranks: local. Threads: any.
/// Throws Error (exit code data) that names file, byte offset and the expected content: missing or
/// empty file, bad magic number, unknown type, truncated header or data, sizes that overflow,
/// trailing bytes.
at::Tensor read_idx(const std::string& path);

/// Reads images (uint8, [N, 1, H, W]) and labels (int64, [N], below `classes`) from the two IDX
/// files FOLDER/PREFIX-images-idx3-ubyte and FOLDER/PREFIX-labels-idx1-ubyte, each plain or with
/// ".gz". PREFIX is "train" or "t10k". Throws as read_idx, and if the two files do not fit
/// together.
LabelledImages read_idx_images(const std::string& folder, const std::string& prefix,
                               int64_t classes = 10);

}  // namespace lockstep
