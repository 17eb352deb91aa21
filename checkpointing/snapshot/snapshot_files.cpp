#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>
#include <lockstep/checkpointing/snapshot/format/cover.h>
#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/save_plan.h>
#include <lockstep/checkpointing/snapshot/impl/snapshot_files.h>

#include <sys/stat.h>

#include <utility>

namespace lockstep::snapshot {
namespace {

Manifest read_manifest(const std::string& path) {
  const MappedFile file(path);
  return Manifest::parse(file.text(), path);
}

}  // namespace

SnapshotFiles::SnapshotFiles(const std::string& folder)
    : folder_(absolute_path(folder)), manifest_(read_manifest(path_of(kManifestName))) {
  const auto step = step_of(folder_.substr(folder_.rfind('/') + 1));
  if (step && *step != manifest_.step) {
    reject(path_of(kManifestName), "is of step ", manifest_.step,
           ", but its folder has the name of step ", *step, "; it was moved or changed");
  }
  for (const auto& [name, record] : manifest_.files) {
    check_size(name, record);
  }
  check_cover(manifest_.files, folder_);
}

void SnapshotFiles::check_size(const std::string& name, const FileRecord& record) const {
  struct stat status {};
  if (::lstat(path_of(name).c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    reject(path_of(name), "is part of the snapshot, but is missing or no regular file");
  }
  if (static_cast<uint64_t>(status.st_size) != record.bytes) {
    reject(path_of(name), "has ", status.st_size, " bytes, but ", record.bytes,
           " were written; it is truncated or was changed");
  }
}

void SnapshotFiles::check_indexes() const {
  for (const auto& [name, written] : index_files(manifest_.files)) {
    const MappedFile index(path_of(name));
    if (index.text() != written) {
      reject(index.path(), "is damaged: it differs from the index that the manifest's files make");
    }
  }
}

void SnapshotFiles::check_header(const SafetensorsFile& file, const FileRecord& record) const {
  const std::string_view text = file.header_text();
  const std::string digest = digest_of(text.data(), text.size());
  if (digest != record.header) {
    reject_at(file.path(), 0, "the header is damaged: its digest is ", digest, ", but ",
              record.header, " was written");
  }
  for (const StoredTensor& tensor : file.header().tensors) {
    if (record.tensors.count(tensor.name) == 0) {
      reject_at(file.path(), 0, "has the tensor \"", tensor.name, "\", which the manifest lacks");
    }
  }
  if (file.header().tensors.size() != record.tensors.size()) {
    reject_at(file.path(), 0, "has ", file.header().tensors.size(), " tensors, but the manifest ",
              record.tensors.size());
  }
}

const SafetensorsFile& SnapshotFiles::file(const std::string& name) const {
  auto& file = open_[name];
  if (file == nullptr) {
    auto opened = std::make_unique<SafetensorsFile>(path_of(name));
    check_header(*opened, manifest_.files.at(name));
    file = std::move(opened);
  }
  return *file;
}

/// The file must be open. Threads: any.
void SnapshotFiles::check_digest(const std::string& file_name, const StoredTensor& tensor) const {
  const SafetensorsFile& opened = *open_.at(file_name);
  const std::string_view bytes = opened.bytes_of(tensor);
  const std::string digest = digest_of(bytes.data(), bytes.size());
  const std::string& written = manifest_.files.at(file_name).tensors.at(tensor.name);
  if (digest != written) {
    reject_at(opened.path(), opened.header().data_begin + tensor.begin, "tensor \"", tensor.name,
              "\" is damaged: its bytes have the digest ", digest, ", but ", written,
              " was written");
  }
}

const StoredTensor& SnapshotFiles::checked(const std::string& file_name,
                                           const std::string& tensor) const {
  const StoredTensor& stored = *file(file_name).find(tensor);
  if (!trusted_ && checked_.count(&stored) == 0) {
    check_digest(file_name, stored);
    checked_.insert(&stored);
  }
  return stored;
}

void SnapshotFiles::verify(int part, int parts) const {
  if (part == 0) {
    check_indexes();
  }
  std::vector<std::pair<std::string, const StoredTensor*>> mine;
  int number = 0;
  for (const auto& [name, record] : manifest_.files) {
    const SafetensorsFile& opened = file(name);
    for (const auto& [tensor, digest] : record.tensors) {
      if (number++ % parts == part) {
        mine.emplace_back(name, opened.find(tensor));
      }
    }
  }
  if (part == 0) {
    check_slices(
        manifest_.files,
        [&](const std::string& name, const std::string& tensor) {
          const std::vector<int64_t>& sizes = file(name).find(tensor)->sizes;
          return c10::multiply_integers(sizes);
        },
        folder_);
  }
  at::parallel_for(0, static_cast<int64_t>(mine.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [name, tensor] = mine[static_cast<size_t>(i)];
      check_digest(name, *tensor);
    }
  });
  for (const auto& entry : mine) {
    checked_.insert(entry.second);
  }
}

}  // namespace lockstep::snapshot
