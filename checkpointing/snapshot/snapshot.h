#pragma once

#include <ATen/core/Tensor.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/snapshot_section.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Reads a complete snapshot: its manifest, texts and tensors.
///
/// Ranks: local; any number of ranks may open it, whatever the number that wrote it. Threads: one.
/// Cheap to copy.
/// Errors: Error (exit code snapshot) with the file, the byte offset and the reason.
class Snapshot {
 public:
  /// path: FOLDER/step-000000001200. Checks the manifest and the sizes of all files. The header of
  /// a file and the digest of a tensor are checked when they are first read, or by verify().
  explicit Snapshot(const std::string& path) : files_(std::make_shared<SnapshotFiles>(path)) {}

  const std::string& path() const { return files_->folder(); }
  const Manifest& manifest() const { return files_->manifest(); }
  /// Throws if there is no text with this name.
  const std::string& text(const std::string& name) const;

  /// Divides the tensors into `parts` shares, and reads and checks every byte of share number
  /// `part`.
  void verify(int part = 0, int parts = 1) const { files_->verify(part, parts); }
  /// Disables digest checks on later reads. Call it once every rank has verified its share with
  /// verify().
  void trust() const { files_->trust(); }

  /// The names of all sections, sorted.
  std::vector<std::string> sections() const;
  /// The tensors of the section that all ranks share; empty if there is no such section.
  SnapshotSection section(const std::string& name) const { return {files_, name}; }

  /// The names of the tensors that rank `rank` saved with Content::add_own, sorted.
  std::vector<std::string> own_names(const std::string& section, int rank) const;
  at::Tensor read_own(const std::string& section, int rank, const std::string& name) const;

 private:
  std::shared_ptr<const SnapshotFiles> files_;
};

}  // namespace lockstep::snapshot

namespace lockstep {
using snapshot::Snapshot;
}  // namespace lockstep
