#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

namespace lockstep::snapshot {

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(std::make_shared<MappedFile>(path)),
      header_(SafetensorsHeader::parse(file_->text(), path)) {
  places_.reserve(header_.tensors.size());
  for (size_t place = 0; place < header_.tensors.size(); ++place) {
    places_.emplace(header_.tensors[place].name, place);
  }
}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &header_.tensors[place->second];
}

std::string_view SafetensorsFile::bytes_of(const StoredTensor& tensor) const {
  return file_->text().substr(header_.data_begin + tensor.begin, tensor.end - tensor.begin);
}

at::Tensor SafetensorsFile::tensor(const StoredTensor& stored) const {
  if (!stored.type->torch) {
    reject_at(path(), header_.data_begin + stored.begin, "tensor \"", stored.name, "\" is ",
              stored.type->name, ", a packed type that tensors cannot hold here");
  }
  const at::ScalarType dtype = *stored.type->torch;
  const std::string_view bytes = bytes_of(stored);
  if (bytes.empty()) {
    return at::empty(stored.sizes, dtype);
  }
  if (reinterpret_cast<uintptr_t>(bytes.data()) % c10::elementSize(dtype) == 0) {
    char* data = file_->data() + (bytes.data() - file_->text().data());
    return at::from_blob(
        data, stored.sizes, [file = file_](void*) {}, dtype);
  }
  at::Tensor copy = at::empty(stored.sizes, dtype);
  std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const StoredTensor* stored = find(name);
  if (stored == nullptr) {
    reject(path(), "has no tensor \"", name, "\" among its ", header_.tensors.size());
  }
  return tensor(*stored);
}

}  // namespace lockstep::snapshot
