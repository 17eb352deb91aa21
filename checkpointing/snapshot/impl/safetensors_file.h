#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_header.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep::snapshot {

/// Reads a safetensors file through a memory mapping. The file may come from any program, padded or
/// not.
///
/// Errors: Error (exit code snapshot) with the file and the byte offset if the file is truncated or
/// malformed. Threads: any. Ranks: local.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const SafetensorsHeader& header() const { return header_; }
  /// Null if there is no tensor with this name.
  const StoredTensor* find(const std::string& name) const;

  /// The length field and the header, as stored in the file.
  std::string_view header_text() const { return file_->text().substr(0, header_.data_begin); }
  std::string_view bytes_of(const StoredTensor& tensor) const;
  /// Returns the tensor on the CPU, contiguous. It shares the mapped memory if its bytes are
  /// aligned in the file; otherwise it is a copy. Either way it stays valid after this object is
  /// destroyed, and writes to it never reach the file. Throws for a dtype that tensors do not have
  /// (F4, F6_*).
  at::Tensor tensor(const StoredTensor& stored) const;
  /// As above, by name. Throws if there is no tensor with this name.
  at::Tensor tensor(const std::string& name) const;

 private:
  std::shared_ptr<MappedFile> file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace lockstep::snapshot
