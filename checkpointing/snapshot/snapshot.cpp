#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>

#include <set>

namespace lockstep::snapshot {

const std::string& Snapshot::text(const std::string& name) const {
  const auto text = manifest().texts.find(name);
  if (text == manifest().texts.end()) {
    reject(path(), "has no text \"", name, "\"");
  }
  return text->second;
}

std::vector<std::string> Snapshot::sections() const {
  std::set<std::string> names;
  for (const auto& [file, record] : manifest().files) {
    names.insert(record.section);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> Snapshot::own_names(const std::string& section, int rank) const {
  std::set<std::string> names;
  for (const auto& [file, record] : manifest().files) {
    if (record.role == FileRole::own && record.section == section && record.rank == rank) {
      for (const auto& [name, digest] : record.tensors) {
        names.insert(name);
      }
    }
  }
  return {names.begin(), names.end()};
}

at::Tensor Snapshot::read_own(const std::string& section, int rank, const std::string& name) const {
  for (const auto& [file, record] : manifest().files) {
    if (record.role == FileRole::own && record.section == section && record.rank == rank &&
        record.tensors.count(name) > 0) {
      return files_->file(file).tensor(files_->checked(file, name));
    }
  }
  reject(path(), "has no tensor \"", name, "\" of rank ", rank, " in section ", section,
         "; it was written by ", manifest().world_size, " ranks");
}

}  // namespace lockstep::snapshot
