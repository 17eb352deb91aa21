#include <ATen/autocast_mode.h>
#include <ATen/ops/t.h>
#include <lockstep/amp/kept_fp32.h>
#include <lockstep/amp/weight_casts.h>
#include <torch/library.h>

namespace lockstep::amp {

namespace {

thread_local bool caches_transposes = false;

bool is_fp32_parameter(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.requires_grad() && tensor.is_leaf() &&
         !tensor.is_view() && !computes_in_fp32(tensor);
}

template <c10::DeviceType kDevice>
at::Tensor transpose(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (!caches_transposes || !is_fp32_parameter(tensor)) {
    return at::t(tensor);
  }
  return at::t(
      at::autocast::cached_cast(at::autocast::get_autocast_dtype(kDevice), tensor, kDevice));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutocastCPU, library) {
  library.impl("t", &transpose<c10::kCPU>);
}
TORCH_LIBRARY_IMPL(aten, AutocastCUDA, library) {
  library.impl("t", &transpose<c10::kCUDA>);
}

CachedTransposes::CachedTransposes() : previous_(caches_transposes) {
  caches_transposes = true;
}
CachedTransposes::~CachedTransposes() {
  caches_transposes = previous_;
}

WeightCastScope::WeightCastScope() {
  at::autocast::increment_nesting();
}
WeightCastScope::~WeightCastScope() {
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
}

}  // namespace lockstep::amp
