#pragma once

#include <lockstep/checkpointing/snapshot/manifest.h>
#include <lockstep/checkpointing/snapshot/safetensors_file.h>

#include <map>
#include <memory>
#include <set>
#include <string>

namespace lockstep::snapshot {

/// The files of a finished snapshot, each opened when first needed and held against the manifest.
/// Errors: Error (exit code snapshot) naming file, byte and tensor. Threads: one.
class SnapshotFiles {
 public:
  /// Reads the manifest and compares the files' sizes.
  explicit SnapshotFiles(std::string folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const SafetensorsFile& file(const std::string& name) const;
  /// The tensor's place in the file, after its digest was checked once.
  const StoredTensor& checked(const std::string& file_name, const std::string& tensor) const;
  /// Checks the header of each file and the digests of every `parts`-th tensor, from number `part`
  /// on, with all compute threads.
  void verify(int part, int parts) const;
  /// No digest is computed any more: others have checked the parts that this rank has not.
  void trust() const { trusted_ = true; }

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void check_size(const std::string& name, const FileRecord& record) const;
  void check_header(const SafetensorsFile& file, const FileRecord& record) const;
  void check_digest(const std::string& file_name, const StoredTensor& tensor) const;

  std::string folder_;
  Manifest manifest_;
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>> open_;
  mutable std::set<const StoredTensor*> checked_;
  mutable bool trusted_ = false;
};

}  // namespace lockstep::snapshot
