#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::snapshot {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes a stand-alone safetensors file for other programs, atomically: `path` holds either the
/// old file or the complete new one. Tensors: dense, on any device, with any strides and any dtype
/// of the format, in any order. Ranks: local. Threads: any. Errors: Error (exit code snapshot) with
/// the path or the name of the tensor.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace lockstep::snapshot
