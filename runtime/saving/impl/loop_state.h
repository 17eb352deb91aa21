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

/// Variables of the training loop that snapshots hold: Trainer::state() says what that means.
/// Ranks: local, each has its own. Threads: one.
class LoopState {
 public:
  using Place = std::variant<at::Tensor*, double*, int64_t*>;

  explicit LoopState(c10::Device device) : device_(device) {}

  /// Gives the variable what was loaded for it before it was added, if anything. Throws Error for
  /// a name or a value that no snapshot can hold, or a value of another kind.
  void add(const std::string& name, Place place);
  void save(snapshot::Content& content) const;
  /// The variables as they are: copies. give_back() restores them.
  std::map<std::string, at::Tensor> keep() const;
  void give_back(const std::map<std::string, at::Tensor>& kept) const;
  /// Throws Error (exit code snapshot) where a variable is of another kind than what is saved.
  void check(const Snapshot& saved, int rank, int ranks) const;
  /// Returns what could not be given back, one line each.
  std::vector<std::string> load(const Snapshot& saved, int rank, int ranks);

 private:
  using Values = std::map<std::string, at::Tensor>;  // undefined ones, too
  static Values values_for(const Snapshot& saved, int rank, int ranks);
  void give(const Place& place, const at::Tensor& value) const;

  c10::Device device_;
  std::map<std::string, Place> places_;
  Values waiting_;  // for variables that are added later
};

}  // namespace lockstep::detail
