#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::snapshot {

/// The size and the digests (digest.h) of a file, for the manifest.
struct WrittenFile {
  uint64_t bytes = 0;
  std::string header;                          // digest of the length field and the header
  std::map<std::string, std::string> tensors;  // digest of each tensor's bytes
};

/// Why a safetensors file cannot hold the tensor under this name, and what to do; empty if it can.
/// For checks before anything is written.
std::string why_not_storable(const std::string& name, const at::Tensor& tensor);
/// Throws Error (exit code snapshot) with why_not_storable().
void require_storable(const std::string& name, const at::Tensor& tensor);

/// Returns the elements of the tensor in row-major order in host memory, ready to be written. A
/// tensor that has this form already is not copied. Throws Error with the name of the tensor if it
/// is undefined or not dense.
at::Tensor host_elements(const std::string& name, const at::Tensor& tensor);

/// Writes a new safetensors file. Its content is on the disk when the function returns.
/// Tensors: dense, on any device, with any strides and any dtype of the format, in any order.
/// Threads: any. Ranks: local.
WrittenFile write_safetensors(FileSystem& files, const std::string& path,
                              const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata);

/// Returns what write_safetensors() would return, without writing.
WrittenFile describe_safetensors(const NamedTensors& tensors,
                                 const std::map<std::string, std::string>& metadata);

}  // namespace lockstep::snapshot
