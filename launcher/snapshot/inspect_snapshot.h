#pragma once

#include <iosfwd>
#include <string>

namespace lockstep::launcher {

/// Prints the content of a snapshot (with `tensors` also each tensor) and checks every byte; for
/// the folder of a run one line for each snapshot. Throws lockstep::Error (exit code snapshot) for
/// a snapshot that cannot be used.
void inspect_snapshot(const std::string& path, bool tensors, std::ostream& out);

/// Prints the differences of two snapshots: texts, missing tensors, tensors with other bytes.
/// Returns whether their content is equal.
bool compare_snapshots(const std::string& path, const std::string& other, std::ostream& out);

/// Writes the tensors of a section that all ranks share to one safetensors file; tied names are in
/// its metadata, for safetensors.torch.load_model. `folder`: a snapshot, or a run, of which it
/// takes the newest undamaged snapshot and prints which one.
void export_snapshot(const std::string& folder, const std::string& section, const std::string& file,
                     std::ostream& out);

}  // namespace lockstep::launcher
