#pragma once

#include <iosfwd>
#include <string>

namespace lockstep::launcher {

/// Prints what is in a snapshot and checks every byte of it; with `tensors` also each tensor. The
/// folder of a run: one line for each of its snapshots. Throws lockstep::Error (exit code snapshot)
/// for a snapshot that cannot be used.
void inspect_snapshot(const std::string& path, bool tensors, std::ostream& out);

/// Prints in what two snapshots differ: texts, tensors that one of them lacks, tensors with other
/// bytes. Returns whether they hold the same.
bool compare_snapshots(const std::string& path, const std::string& other, std::ostream& out);

/// Writes the tensors of a section that all ranks share to one safetensors file; tied names are in
/// its metadata, where safetensors.torch.load_model looks for them. `folder`: a snapshot, or a run,
/// of which the newest undamaged snapshot is taken; `out` says which.
void export_snapshot(const std::string& folder, const std::string& section, const std::string& file,
                     std::ostream& out);

}  // namespace lockstep::launcher
