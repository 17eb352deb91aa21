#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/data/labelled_images.h>

#include <string>

namespace lockstep {

/// Reads a file in the IDX format of MNIST and its kin, plain or gzip: the shape is the file's, the
/// dtype is the one the file names (uint8, int8, int16, int32, fp32, fp64).
/// Ranks: local. Threads: any.
/// Throws Error (exit code data) with file, byte offset and what was expected: missing or empty
/// file, bad magic number, unknown type, truncated header or data, sizes that overflow, trailing
/// bytes.
at::Tensor read_idx(const std::string& path);

/// Images (uint8, [N, 1, H, W]) and labels (int64, [N], below `classes`) of the two IDX files
/// FOLDER/PREFIX-images-idx3-ubyte and FOLDER/PREFIX-labels-idx1-ubyte, each plain or with ".gz";
/// PREFIX is "train" or "t10k". Throws as read_idx, and when the two do not fit together.
LabelledImages read_idx_images(const std::string& folder, const std::string& prefix,
                               int64_t classes = 10);

}  // namespace lockstep
