#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Interface to named tensors on disk: a section of a snapshot, or the weights of a model in
/// safetensors files.
/// Errors: Error (exit code snapshot) with the file and the tensor. Threads: one. Ranks: local.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Names the source in messages.
  virtual const std::string& path() const = 0;
  /// The names of all tensors, sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  virtual std::vector<int64_t> sizes(const std::string& name) const = 0;
  virtual at::ScalarType dtype(const std::string& name) const = 0;
  /// Returns the tensor on the CPU, contiguous. If a digest of its bytes is stored, they are
  /// checked against it.
  virtual at::Tensor read(const std::string& name) const = 0;
};

}  // namespace lockstep::snapshot
