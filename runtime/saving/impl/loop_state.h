#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::detail {

/// Variables of the training loop that snapshots hold; see Trainer::state().
/// Ranks: local, each has its own. Threads: one.
class LoopState {
 public:
  using Place = std::variant<at::Tensor*, double*, int64_t*, std::string*>;

  explicit LoopState(c10::Device device) : device_(device) {}

  /// Adds a variable. If load() found a value for it earlier, the variable gets that value. Throws
  /// Error for a name or a value that no snapshot can hold, or a loaded value of another kind.
  void add(const std::string& name, Place place);
  void save(snapshot::Content& content) const;
  /// Copies of all values, for give_back().
  std::map<std::string, at::Tensor> keep() const;
  void give_back(const std::map<std::string, at::Tensor>& kept) const;
  /// Throws Error (exit code snapshot) if a variable and its saved value are of different kinds.
  void check(const Snapshot& saved, int rank, int ranks) const;
  /// Loads the saved values. Returns one line for each value that could not be restored.
  std::vector<std::string> load(const Snapshot& saved, int rank, int ranks);

 private:
  using Values = std::map<std::string, at::Tensor>;  // may be undefined tensors
  static Values values_for(const Snapshot& saved, int rank, int ranks);
  void give(const Place& place, const at::Tensor& value) const;

  c10::Device device_;
  std::map<std::string, Place> places_;
  Values waiting_;  // for variables that are added later
};

}  // namespace lockstep::detail
