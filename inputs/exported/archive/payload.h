#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/inputs/exported/archive/archive.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::exported {

/// A tensor of the archive, by its name in Python.
struct StoredTensor {
  std::string name;
  at::Tensor tensor;
  bool parameter = false;
  c10::Device device = c10::kCPU;  // device at export; `tensor` is on the CPU
};

/// The parameters and persistent buffers of a program. Several names of one tensor have the same
/// at::Tensor; views of one storage share that storage.
/// Throws Error (exit code data) for pickled tensors and for sizes outside of the stored bytes.
std::vector<StoredTensor> read_weights(Archive& archive, const std::string& program);
/// The constants of a program, and its buffers that are not persistent.
std::vector<StoredTensor> read_constants(Archive& archive, const std::string& program);

}  // namespace lockstep::exported
