#include <lockstep/checkpointing/snapshot/write/shadow_memory.h>

#include <lockstep/collectives/impl/device_watch.h>

namespace lockstep::snapshot {

void ShadowMemory::replace_by_copies(std::vector<PlannedFile>& files) {
  size_t place = 0;
  for (PlannedFile& file : files) {
    for (auto& [name, tensor] : file.tensors) {
      if (file.fetched.count(name) == 0) {
        tensor = copy_of(tensor, place++);
      }
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
    copy = lockstep::detail::host_memory_for(tensor.device(), tensor.sizes(), tensor.scalar_type());
  }
  copy.copy_(tensor.detach());
  return copy;
}

}  // namespace lockstep::snapshot
