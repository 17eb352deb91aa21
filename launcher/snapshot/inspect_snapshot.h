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
/// takes the newest undamaged snapshot, or with `best` the one with the best metric, and prints
/// which one. `averaged`: moving averages in place of the tensors of the section `model`.
struct Export {
  std::string folder;
  std::string file;
  std::string section = "model";
  bool best = false;
  bool averaged = false;
};
void export_snapshot(const Export& wanted, std::ostream& out);

}  // namespace lockstep::launcher
