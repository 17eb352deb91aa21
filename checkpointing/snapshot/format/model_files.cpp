#include <lockstep/checkpointing/snapshot/format/cover.h>
#include <lockstep/checkpointing/snapshot/format/json_fields.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/model_files.h>

#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <set>

namespace lockstep::snapshot {
namespace {

constexpr size_t kMaxIndexBytes = size_t{32} << 20;
constexpr size_t kMaxIndexValues = 500'000;
constexpr size_t kMaxHeaderBytes = 100'000'000;  // of all files of an index

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string resolved(const std::string& path) {
  if (!is_folder(path)) {
    return path;
  }
  const std::string single = path + "/model.safetensors";
  const std::string index = single + ".index.json";
  if (exists(index)) {
    return index;
  }
  if (!exists(single)) {
    reject(path, "has neither model.safetensors nor model.safetensors.index.json");
  }
  return single;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? path : real.get();
}

bool is_link(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

/// `path`, or the target of its link if that is allowed (see ModelFiles).
std::string followed(const std::string& path) {
  if (!is_link(path)) {
    return path;
  }
  std::string root = real_path(folder_of(path).empty() ? "." : folder_of(path));
  const size_t above = root.rfind('/');
  const std::string parent = root.substr(0, above == std::string::npos ? 0 : above);
  if (ends_with(parent, "/snapshots")) {
    root = parent.substr(0, parent.rfind('/'));
  }
  const std::string target = real_path(path);
  if (target.compare(0, root.size() + 1, root + "/") != 0) {
    reject(path, "cannot be opened for reading: it is a symbolic link to ", target,
           ", which is outside of ", root);
  }
  return target;
}

}  // namespace

ModelFiles::ModelFiles(const std::string& path) : path_(resolved(path)) {
  const std::string opened = path_ != path    ? followed(path_)
                             : is_link(path_) ? real_path(path_)
                                              : path_;
  size_t headers = 0;
  if (ends_with(path_, ".json")) {
    open_index(opened);
  } else {
    open_file(opened, headers);
    for (const StoredTensor& tensor : files_.back()->header().tensors) {
      places_[tensor.name] = files_.back().get();
    }
  }
}

void ModelFiles::open_file(const std::string& path, size_t& headers) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  headers += files_.back()->header_text().size();
  if (headers > kMaxHeaderBytes) {
    reject(path_, "names files whose headers have more than ", kMaxHeaderBytes, " bytes together");
  }
}

void ModelFiles::open_index(const std::string& opened_path) {
  const std::string& path = path_;
  const MappedFile file(opened_path);
  if (file.size() > kMaxIndexBytes) {
    reject(path, "has ", file.size(), " bytes; an index has at most ", kMaxIndexBytes);
  }
  JsonLimits limits;
  limits.values = kMaxIndexValues;
  const nlohmann::json document = parse_json(file.text(), path, 0, limits);
  const auto names = JsonFields(document, path, "").object("weight_map").all_texts();
  std::set<std::string> files;
  for (const auto& [tensor, file_name] : names) {
    files.insert(file_name);
  }
  if (const std::string missing = missing_of_sets(files); !missing.empty()) {
    reject(path, "names files of a set, but not ", missing,
           "; the index is incomplete, or the file is missing");
  }
  std::map<std::string, const SafetensorsFile*> opened;
  size_t headers = 0;
  for (const auto& [tensor, file_name] : names) {
    if (!is_plain_name(file_name)) {
      reject(path, "places \"", tensor, "\" in \"", file_name,
             "\", which is no plain file name beside the index");
    }
    const SafetensorsFile*& shard = opened[file_name];
    if (shard == nullptr) {
      open_file(followed(folder_of(path) + file_name), headers);
      shard = files_.back().get();
    }
    if (shard->find(tensor) == nullptr) {
      reject(path, "places \"", tensor, "\" in ", file_name, ", which does not have it");
    }
    places_[tensor] = shard;
  }
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : places_) {
    names.push_back(name);
  }
  return names;
}

const StoredTensor& ModelFiles::stored(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    reject(path_, "has no tensor \"", name, "\" among its ", places_.size());
  }
  return *place->second->find(name);
}

std::vector<int64_t> ModelFiles::sizes(const std::string& name) const {
  return stored(name).sizes;
}

at::ScalarType ModelFiles::dtype(const std::string& name) const {
  const StoredTensor& tensor = stored(name);
  if (!tensor.type->torch) {
    reject(path_, "tensor \"", name, "\" is ", tensor.type->name,
           ", a packed type that tensors cannot hold here");
  }
  return *tensor.type->torch;
}

at::Tensor ModelFiles::read(const std::string& name) const {
  return places_.at(name)->tensor(stored(name));
}

}  // namespace lockstep::snapshot
