#include <ATen/core/LegacyTypeDispatch.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/state/flat.h>

namespace lockstep::detail {

at::Tensor flat_alias(const at::Tensor& tensor, const std::string& name) {
  LOCKSTEP_CHECK(tensor.is_non_overlapping_and_dense(), "tensor ", name, " of sizes ",
                 tensor.sizes(), " and strides ", tensor.strides(),
                 " has gaps or overlaps; make it contiguous() before wrapping the model");
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

at::Tensor shaped_view(const at::Tensor& flat, int64_t offset, const at::Tensor& like) {
  // Autograd must not know it for a view: Optimizer::zero_grad() refuses gradients that are views.
  const at::AutoDispatchBelowADInplaceOrView untracked;
  return flat.as_strided(like.sizes(), like.strides(), flat.storage_offset() + offset);
}

bool same_memory_order(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) {
      return false;
    }
  }
  return true;
}

}  // namespace lockstep::detail
