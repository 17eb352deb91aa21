#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/manifest.h>
#include <lockstep/checkpointing/snapshot/snapshot_section.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// A finished snapshot, for reading: its manifest, texts and tensors.
///
/// Ranks: local, any number of them, however many wrote it. Threads: one. Cheap to copy.
/// Errors: Error (exit code snapshot) with file, byte and what is wrong.
class Snapshot {
 public:
  /// Opens FOLDER/step-000000001200. Checks the manifest and the sizes of all files; each file's
  /// header and each tensor's digest is checked when it is first read, or by verify().
  explicit Snapshot(const std::string& path) : files_(std::make_shared<SnapshotFiles>(path)) {}

  const std::string& path() const { return files_->folder(); }
  const Manifest& manifest() const { return files_->manifest(); }
  /// Throws when there is no text of this name.
  const std::string& text(const std::string& name) const;

  /// Reads and checks every byte of one of `parts` shares of the tensors.
  void verify(int part = 0, int parts = 1) const { files_->verify(part, parts); }
  /// Reads from here on check no digest again: the shares of verify() that are not this rank's were
  /// checked by others, who said so.
  void trust() const { files_->trust(); }

  /// Sorted.
  std::vector<std::string> sections() const;
  /// The tensors that all ranks share; empty if there is no such section.
  SnapshotSection section(const std::string& name) const { return {files_, name}; }

  /// The tensors that rank `rank` saved with Content::add_own; sorted.
  std::vector<std::string> own_names(const std::string& section, int rank) const;
  at::Tensor read_own(const std::string& section, int rank, const std::string& name) const;

 private:
  std::shared_ptr<const SnapshotFiles> files_;
};

}  // namespace lockstep::snapshot

namespace lockstep {
using snapshot::Snapshot;
}  // namespace lockstep
