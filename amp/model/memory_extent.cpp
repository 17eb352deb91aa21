#include <lockstep/amp/impl/memory_extent.h>

namespace lockstep::detail {

MemoryExtent::MemoryExtent(const at::Tensor& tensor)
    : storage(tensor.storage().unsafeGetStorageImpl()) {
  int64_t elements = tensor.numel() > 0 ? 1 : 0;
  for (int64_t d = 0; elements > 0 && d < tensor.dim(); ++d) {
    elements += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const auto item = static_cast<int64_t>(tensor.element_size());
  begin = tensor.storage_offset() * item;
  end = begin + elements * item;
}

}  // namespace lockstep::detail
