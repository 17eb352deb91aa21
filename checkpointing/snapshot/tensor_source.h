#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Named tensors on disk: a section of a snapshot, or the weights of a model in safetensors files.
/// Errors: Error (exit code snapshot) naming file and tensor. Threads: one. Ranks: local.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// What it is, for messages.
  virtual const std::string& path() const = 0;
  /// Sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  virtual std::vector<int64_t> sizes(const std::string& name) const = 0;
  virtual at::ScalarType dtype(const std::string& name) const = 0;
  /// The tensor on the CPU, contiguous, its bytes checked against their digest where there is one.
  virtual at::Tensor read(const std::string& name) const = 0;
};

}  // namespace lockstep::snapshot
