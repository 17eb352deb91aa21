#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/file_system.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::snapshot {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What was written, for the manifest: sizes and digests (digest.h).
struct WrittenFile {
  uint64_t bytes = 0;
  std::string header;                          // digest of length and header
  std::map<std::string, std::string> tensors;  // digest of each tensor's bytes
};

/// The tensor's elements in row-major order in host memory, ready to be written; the tensor itself
/// where it is that already. Throws Error naming the tensor if it is undefined or not dense.
at::Tensor host_elements(const std::string& name, const at::Tensor& tensor);

/// Writes a new safetensors file whose content is on the disk when this returns.
/// Tensors: dense, any device, any strides, any dtype of the format; the order does not matter.
/// Threads: any. Ranks: local.
WrittenFile write_safetensors(FileSystem& files, const std::string& path,
                              const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata);

/// The same as a file of its own, for interchange: under `path` there is the old file or the whole
/// new one, never a part.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                      FileSystem* files = nullptr);

}  // namespace lockstep::snapshot
