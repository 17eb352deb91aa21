#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/inputs/exported/archive/archive.h>
#include <lockstep/inputs/exported/archive/archive_writer.h>

#include <string>
#include <unordered_map>
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
/// at::Tensor; views of one storage share that storage. A buffer with gaps or overlaps in a storage
/// of its own becomes contiguous.
/// Throws Error (exit code data) for pickled tensors and for sizes outside of the stored bytes.
std::vector<StoredTensor> read_weights(Archive& archive, const std::string& program);
/// The constants of a program, and its buffers that are not persistent.
std::vector<StoredTensor> read_constants(Archive& archive, const std::string& program);

/// Tensors by their names.
using NamedTensors = std::unordered_map<std::string, at::Tensor>;
/// Adds the records of a program's weights and constants with these values to `changed`, in the
/// dtypes and layouts of the archive; later lists replace values of earlier ones. Throws Error
/// (exit code data) if the archive is not the one that the tensors came from.
void write_weights(Archive& archive, const std::string& program,
                   const std::vector<NamedTensors>& values, Records& changed);
void write_constants(Archive& archive, const std::string& program, const NamedTensors& values,
                     Records& changed);

}  // namespace lockstep::exported
