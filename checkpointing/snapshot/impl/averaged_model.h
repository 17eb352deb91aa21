#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/tensor_source.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// A tensor's moving average has its name with this ending, in the section `optimizer`.
inline constexpr char kAverage[] = ".ema";

/// The section `model` of a snapshot, with the moving average (TrainerOptions::ema) of each tensor
/// that has one in place of the tensor. Ranks: local. Threads: one.
class AveragedModel : public TensorSource {
 public:
  /// Throws Error (exit code snapshot) if the snapshot holds no averages.
  explicit AveragedModel(const Snapshot& saved);

  const std::string& path() const override { return model_.path(); }
  std::vector<std::string> names() const override { return model_.names(); }
  bool has(const std::string& name) const override { return model_.has(name); }
  std::vector<int64_t> sizes(const std::string& name) const override { return model_.sizes(name); }
  at::ScalarType dtype(const std::string& name) const override;
  at::Tensor read(const std::string& name) const override;

 private:
  /// The name of the tensor's average in the section `optimizer`; empty if it has none.
  std::string average_of(const std::string& name) const;

  SnapshotSection model_;
  SnapshotSection optimizer_;
  std::map<std::string, std::string> tied_;  // name -> the name it is stored under
};

}  // namespace lockstep::snapshot
