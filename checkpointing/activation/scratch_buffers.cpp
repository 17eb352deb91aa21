#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <lockstep/checkpointing/activation/impl/scratch_buffers.h>

#include <set>

namespace lockstep::activation {

ScratchBuffers::ScratchBuffers(const std::vector<at::Tensor>& buffers) {
  const at::NoGradGuard no_grad;
  std::set<const void*> seen;  // tied buffers, and views of one tensor
  for (const at::Tensor& buffer : buffers) {
    if (!buffer.defined() || !buffer.has_storage() ||
        !seen.insert(buffer.storage().unsafeGetStorageImpl()).second) {
      continue;
    }
    const c10::Storage& storage = buffer.storage();
    const auto bytes = static_cast<int64_t>(storage.nbytes());
    const auto like = at::TensorOptions().dtype(at::kByte).device(buffer.device());
    const at::Tensor own = at::empty({0}, like).set_(storage, 0, {bytes}, {1});
    lent_.emplace_back(storage, own.clone().storage().set_data_ptr(at::DataPtr()));
  }
  for (auto& [storage, memory] : lent_) {
    memory = storage.set_data_ptr(std::move(memory));
  }
}

ScratchBuffers::~ScratchBuffers() {
  for (auto& [storage, memory] : lent_) {
    storage.set_data_ptr_noswap(std::move(memory));
  }
}

}  // namespace lockstep::activation
