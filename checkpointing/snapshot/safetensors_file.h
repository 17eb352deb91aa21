#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/mapped_file.h>
#include <lockstep/checkpointing/snapshot/safetensors_header.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep::snapshot {

/// A safetensors file for reading, mapped into memory; any writer's, padded or not.
///
/// Errors: Error (exit code snapshot) with file and byte when the file is not whole and well
/// formed. Threads: any. Ranks: local.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const SafetensorsHeader& header() const { return header_; }
  /// Null if there is none of this name.
  const StoredTensor* find(const std::string& name) const;

  /// Length and header, as they are in the file.
  std::string_view header_text() const { return file_->text().substr(0, header_.data_begin); }
  std::string_view bytes_of(const StoredTensor& tensor) const;
  /// On the CPU, contiguous. Shares the mapped memory where the file is aligned, else a copy;
  /// either way it stays valid after this object is gone, and writing to it never reaches the file.
  /// Throws for a dtype that tensors do not have (F4, F6_*).
  at::Tensor tensor(const StoredTensor& stored) const;
  /// The same by name; throws when there is none.
  at::Tensor tensor(const std::string& name) const;

 private:
  std::shared_ptr<MappedFile> file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace lockstep::snapshot
