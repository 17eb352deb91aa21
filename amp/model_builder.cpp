#include <ATen/core/grad_mode.h>
#include <lockstep/amp/model_builder.h>
#include <lockstep/collectives/error.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace lockstep {

namespace {

struct Extent {
  const void* storage;
  int64_t begin;  // bytes in the storage
  int64_t end;
  size_t index;
};

Extent extent_of(const at::Tensor& tensor, size_t index) {
  int64_t elements = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    elements += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const auto item = static_cast<int64_t>(tensor.element_size());
  const int64_t begin = tensor.storage_offset() * item;
  return {tensor.storage().unsafeGetStorageImpl(), begin, begin + elements * item, index};
}

}  // namespace

void TensorList::add(const std::string& name, const at::Tensor& tensor, bool in_norm) {
  const auto [entry, added] = index_.emplace(tensor.unsafeGetTensorImpl(), tensors_.size());
  if (added) {
    tensors_.push_back({name, {}, tensor, in_norm});
    return;
  }
  ModelTensor& known = tensors_[entry->second];
  known.aliases.push_back(name);
  known.in_norm = known.in_norm || in_norm;
}

void TensorList::add_tied(const std::string& name, const at::Tensor& used, bool in_norm,
                          const at::Tensor& registered) {
  add(name, used, in_norm);
  tensors_[index_.at(used.unsafeGetTensorImpl())].replaced.push_back(registered);
}

std::vector<ModelTensor> TensorList::take_disjoint() {
  std::vector<Extent> extents;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].tensor.has_storage() && tensors_[i].tensor.numel() > 0) {
      extents.push_back(extent_of(tensors_[i].tensor, i));
    }
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.storage, a.begin, a.index) < std::tie(b.storage, b.begin, b.index);
  });
  for (size_t i = 1; i < extents.size(); ++i) {
    const Extent& a = extents[i - 1];
    const Extent& b = extents[i];
    const size_t first = std::min(a.index, b.index);
    const size_t second = std::max(a.index, b.index);
    LOCKSTEP_CHECK(a.storage != b.storage || b.begin >= a.end, "parameters '", tensors_[first].name,
                   "' and '", tensors_[second].name,
                   "' are different tensors that overlap in memory, so updating one would change "
                   "the other. To tie weights, assign the tensor itself, not its data (set_data): "
                   "decoder->weight = encoder->weight");
  }
  return std::move(tensors_);
}

void show_ties(const Model& model) {
  const at::NoGradGuard no_grad;
  for (const ModelTensor& entry : model.parameters()) {
    for (const at::Tensor& replaced : entry.replaced) {
      replaced.set_data(entry.tensor.detach());
    }
  }
}

}  // namespace lockstep
