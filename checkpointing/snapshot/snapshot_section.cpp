#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/snapshot_section.h>
#include <lockstep/collectives/check.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace lockstep::snapshot {
namespace {

int64_t numel(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
}

}  // namespace

SnapshotSection::SnapshotSection(std::shared_ptr<const SnapshotFiles> files,
                                 const std::string& section)
    : files_(std::move(files)), path_(files_->folder() + " (section " + section + ")") {
  const Manifest& manifest = files_->manifest();
  for (const auto& [file, record] : manifest.files) {
    if (record.section != section || record.role == FileRole::own) {
      continue;
    }
    for (const auto& [tensor, digest] : record.tensors) {
      const auto slice = record.slices.find(tensor);
      places_[tensor].push_back(
          {file, tensor, slice == record.slices.end() ? 0 : slice->second.begin});
    }
  }
  for (auto& [name, parts] : places_) {
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
  }
  if (const auto tied = manifest.tied.find(section); tied != manifest.tied.end()) {
    for (const auto& [name, target] : tied->second) {
      places_[name] = places_.at(target);
    }
  }
}

std::vector<std::string> SnapshotSection::names() const {
  std::vector<std::string> names;
  for (const auto& [name, parts] : places_) {
    names.push_back(name);
  }
  return names;
}

const SnapshotSection::Parts& SnapshotSection::parts(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    reject(path_, "has no tensor \"", name, "\" among its ", places_.size());
  }
  return place->second;
}

const StoredTensor& SnapshotSection::stored(const Part& part) const {
  return *files_->file(part.file).find(part.tensor);
}

std::vector<int64_t> SnapshotSection::sizes(const std::string& name) const {
  const Part& first = parts(name).front();
  const FileRecord& record = files_->manifest().files.at(first.file);
  return record.role == FileRole::slices ? record.slices.at(first.tensor).sizes
                                         : stored(first).sizes;
}

at::ScalarType SnapshotSection::dtype(const std::string& name) const {
  const StoredTensor& tensor = stored(parts(name).front());
  if (!tensor.type->torch) {
    reject(path_, "tensor \"", name, "\" is ", tensor.type->name,
           ", a packed type that tensors cannot hold here");
  }
  return *tensor.type->torch;
}

int64_t SnapshotSection::elements(const std::string& name) const {
  return numel(sizes(name));
}

at::Tensor SnapshotSection::read_elements(const std::string& name, int64_t begin,
                                          int64_t end) const {
  LOCKSTEP_CHECK(begin >= 0 && begin <= end && end <= elements(name), "elements ", begin, " to ",
                 end, " of \"", name, "\" were asked for, which has ", elements(name));
  std::vector<at::Tensor> pieces;
  int64_t next = begin;
  for (const Part& part : parts(name)) {
    const int64_t part_end = part.begin + numel(stored(part).sizes);
    if (part_end <= next || part.begin >= end) {
      continue;
    }
    if (part.begin > next) {
      break;
    }
    const SafetensorsFile& file = files_->file(part.file);
    const at::Tensor whole = file.tensor(files_->checked(part.file, part.tensor)).view({-1});
    const int64_t last = std::min(end, part_end);
    pieces.push_back(whole.slice(0, next - part.begin, last - part.begin));
    next = last;
  }
  if (next != end) {
    reject(path_, "the slices of \"", name, "\" leave out element ", next,
           "; a rank's slices are missing");
  }
  if (pieces.empty()) {
    return at::empty({0}, dtype(name));
  }
  return pieces.size() == 1 ? pieces.front() : at::cat(pieces);
}

at::Tensor SnapshotSection::read(const std::string& name) const {
  return read_elements(name, 0, elements(name)).view(sizes(name));
}

}  // namespace lockstep::snapshot
