#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/storage/impl/flat.h>

#include <vector>

namespace lockstep::detail {

at::Tensor flat_alias(const at::Tensor& tensor, const std::string& name) {
  LOCKSTEP_CHECK(tensor.is_non_overlapping_and_dense(), "tensor ", name, " of sizes ",
                 tensor.sizes(), " and strides ", tensor.strides(),
                 " has gaps or overlaps; make it contiguous() before wrapping the model");
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

at::Tensor real_view(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

at::Tensor storable_view(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kComplexDouble ? at::view_as_real(tensor.detach()) : tensor;
}

at::Tensor shaped_view(const at::Tensor& flat, int64_t offset, const at::Tensor& like) {
  // Autograd must not know it for a view: Optimizer::zero_grad() refuses gradients that are views.
  const at::AutoDispatchBelowADInplaceOrView untracked;
  const int64_t begin = flat.storage_offset() + offset;
  if (!like.is_complex()) {
    return flat.as_strided(like.sizes(), like.strides(), begin);
  }
  // Not by real_view(), which refuses a lazy conjugation.
  std::vector<int64_t> sizes = like.sizes().vec();
  std::vector<int64_t> strides = like.strides().vec();
  for (int64_t& stride : strides) {
    stride *= 2;
  }
  sizes.push_back(2);
  strides.push_back(1);
  return at::view_as_complex(flat.as_strided(sizes, strides, begin));
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
