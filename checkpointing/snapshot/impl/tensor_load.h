#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/load.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// load_tensors() tensor by tensor, so that no two of them need be in memory at a time: everything
/// is checked first, then copy() fills one target after the other.
/// Threads: one. Ranks: local.
class TensorLoad {
 public:
  struct Target {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    std::string odd;  // what is odd about a tensor that cannot be written; else empty
  };

  /// Matches the targets with the tensors of the source, which must outlive this object, and reads
  /// each of those once. Throws what load_tensors() throws.
  TensorLoad(const TensorSource& source, const std::vector<Target>& targets,
             const LoadOptions& options);

  const LoadReport& report() const { return report_; }
  /// Copies what the source has for the target of this name. Does nothing if that is not loaded.
  void copy(const std::string& name, const at::Tensor& target) const;

 private:
  struct Place {
    std::string stored;  // the name in the source
    bool transposed;
  };

  const TensorSource& source_;
  LoadReport report_;
  std::map<std::string, Place> places_;  // of the targets that are loaded
};

}  // namespace lockstep::snapshot
