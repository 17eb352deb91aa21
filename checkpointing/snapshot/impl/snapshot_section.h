#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/snapshot_files.h>
#include <lockstep/checkpointing/snapshot/impl/tensor_source.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Reads the tensors of one section that all ranks share, wherever their bytes are stored: whole in
/// one file, tied to another tensor, or in slices of several ranks. Any number of ranks can read
/// the slices, whatever the number that wrote them.
class SnapshotSection : public TensorSource {
 public:
  SnapshotSection(std::shared_ptr<const SnapshotFiles> files, const std::string& section);

  const std::string& path() const override { return path_; }
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return places_.count(name) > 0; }
  std::vector<int64_t> sizes(const std::string& name) const override;
  at::ScalarType dtype(const std::string& name) const override;
  at::Tensor read(const std::string& name) const override;
  /// Reads the elements [begin, end) in row-major order, as a 1-dimensional tensor. Reads only the
  /// parts that hold these elements.
  at::Tensor read_elements(const std::string& name, int64_t begin, int64_t end) const;

 private:
  struct Part {
    std::string file;
    std::string tensor;
    int64_t begin = 0;
  };
  using Parts = std::vector<Part>;  // in the order of their elements

  const Parts& parts(const std::string& name) const;
  const StoredTensor& stored(const Part& part) const;
  int64_t elements(const std::string& name) const;

  std::shared_ptr<const SnapshotFiles> files_;
  std::string path_;
  std::map<std::string, Parts> places_;
};

}  // namespace lockstep::snapshot
