#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>

#include <map>
#include <memory>
#include <set>
#include <string>

namespace lockstep::snapshot {

/// The files of a complete snapshot. Each file is opened when it is first needed, and compared with
/// the manifest. Errors: Error (exit code snapshot) with the file, byte offset and tensor. Threads:
/// one.
class SnapshotFiles {
 public:
  /// Reads the manifest, compares the sizes of the files with it, and checks that no file of a set
  /// is missing.
  explicit SnapshotFiles(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const SafetensorsFile& file(const std::string& name) const;
  /// Returns the place of the tensor in its file. The first call checks the digest of the tensor.
  const StoredTensor& checked(const std::string& file_name, const std::string& tensor) const;
  /// Checks the index files and that slices are complete (part 0), the header of each file, and the
  /// digests of every `parts`-th tensor, starting with tensor number `part`. Uses all compute
  /// threads.
  void verify(int part, int parts) const;
  /// Disables digest checks from now on: other ranks have checked the remaining tensors.
  void trust() const { trusted_ = true; }

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void check_size(const std::string& name, const FileRecord& record) const;
  void check_indexes() const;
  void check_header(const SafetensorsFile& file, const FileRecord& record) const;
  void check_digest(const std::string& file_name, const StoredTensor& tensor) const;

  std::string folder_;
  Manifest manifest_;
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>> open_;
  mutable std::set<const StoredTensor*> checked_;
  mutable bool trusted_ = false;
};

}  // namespace lockstep::snapshot
