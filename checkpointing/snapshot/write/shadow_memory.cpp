#include <lockstep/checkpointing/snapshot/write/shadow_memory.h>

#include <ATen/ops/empty.h>

namespace lockstep::snapshot {

void ShadowMemory::replace_by_copies(std::vector<PlannedFile>& files) {
  size_t place = 0;
  for (PlannedFile& file : files) {
    for (auto& [name, tensor] : file.tensors) {
      tensor = copy_of(tensor, place++);
    }
  }
  copies_.resize(place);
}

at::Tensor ShadowMemory::copy_of(const at::Tensor& tensor, size_t place) {
  if (place == copies_.size()) {
    copies_.emplace_back();
  }
  at::Tensor& copy = copies_[place];
  const bool pinned = !tensor.device().is_cpu();
  if (!copy.defined() || copy.scalar_type() != tensor.scalar_type() ||
      copy.sizes() != tensor.sizes() || copy.is_pinned() != pinned) {
    copy = at::empty(tensor.sizes(),
                     at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(pinned));
  }
  copy.copy_(tensor.detach());
  return copy;
}

}  // namespace lockstep::snapshot
