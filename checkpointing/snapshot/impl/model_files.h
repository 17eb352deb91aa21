#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/checkpointing/snapshot/impl/tensor_source.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// The weights of a model in safetensors files of any program: one file, the files of an index
/// (model.safetensors.index.json), or a folder with either of these.
///
/// An index may name only files in its own folder. A link is followed if it is the path itself, or
/// if it leads to a place inside its folder or, in a Hugging Face cache (CACHE/snapshots/REVISION),
/// inside CACHE. Limits: an index has at most 32 MiB and 500,000 values; the headers of all its
/// files have at most 100 MB together.
/// Ranks: local. Threads: any. Errors: Error (exit code snapshot).
class ModelFiles : public TensorSource {
 public:
  explicit ModelFiles(const std::string& path);

  const std::string& path() const override { return path_; }
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return places_.count(name) > 0; }
  std::vector<int64_t> sizes(const std::string& name) const override;
  at::ScalarType dtype(const std::string& name) const override;
  at::Tensor read(const std::string& name) const override;

 private:
  /// `headers`: the bytes of all headers so far; increased.
  void open_file(const std::string& path, size_t& headers);
  void open_index(const std::string& opened_path);
  const StoredTensor& stored(const std::string& name) const;

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> places_;
};

}  // namespace lockstep::snapshot
