#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/to_ops.h>
#include <lockstep/amp/impl/region_kernels.h>
#include <lockstep/amp/impl/weight_casts.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::amp {

namespace {

struct WeightCast {
  c10::weak_intrusive_ptr<c10::TensorImpl> weight;  // keeps the address from being used again
  uint32_t version;
  bool in_window;
  at::Tensor cast;
  std::shared_ptr<std::atomic<bool>> had_backward = std::make_shared<std::atomic<bool>>(false);

  /// Whether a graph uses the cast and backward has not run. Writes through data(), as by
  /// LibTorch's SGD, have no version, but they come after backward.
  bool is_in_use() const { return cast.grad_fn().use_count() > 1 && !*had_backward; }
};

const at::TensorBase& weight_of(const at::Tensor& tensor) {
  return tensor.is_view() ? tensor._base() : tensor;
}

/// By the weight's address. A view with another layout replaces the entry.
using Casts = std::unordered_map<const void*, WeightCast>;

class ThreadCasts {
 public:
  bool is_on() const { return holders_ > 0; }
  void hold() { ++holders_; }
  void release() {
    if (--holders_ == 0) {
      clear();
    }
  }
  void clear() { casts_.clear(); }
  void open_window(const WeightSet* weights) { windows_.push_back(weights); }
  void close_window(const WeightSet* weights) {
    windows_.erase(std::find(windows_.begin(), windows_.end(), weights));
  }

  const at::Tensor* find(const at::Tensor& tensor, at::ScalarType dtype) const {
    const auto found = casts_.find(tensor.const_data_ptr());
    if (found == casts_.end()) {
      return nullptr;
    }
    const WeightCast& known = found->second;
    const bool same =
        known.weight._unsafe_get_target() == weight_of(tensor).unsafeGetTensorImpl() &&
        known.version == tensor._version() && known.cast.scalar_type() == dtype &&
        known.cast._version() == 0 && known.cast.sizes() == tensor.sizes() &&
        known.cast.strides() == tensor.strides();
    return same && (known.in_window || known.is_in_use()) ? &known.cast : nullptr;
  }

  void add(const at::Tensor& tensor, const at::Tensor& cast) {
    forget_unused();
    const at::TensorBase& weight = weight_of(tensor);
    WeightCast added{c10::weak_intrusive_ptr<c10::TensorImpl>(weight.getIntrusivePtr()),
                     static_cast<uint32_t>(tensor._version()),
                     is_of_a_window(weight.unsafeGetTensorImpl()), cast};
    cast.register_hook([flag = added.had_backward](const at::Tensor& /*gradient*/) {
      flag->store(true, std::memory_order_relaxed);
    });
    casts_.insert_or_assign(tensor.const_data_ptr(), std::move(added));
  }

 private:
  bool is_of_a_window(const c10::TensorImpl* weight) const {
    return std::any_of(windows_.begin(), windows_.end(),
                       [&](const WeightSet* weights) { return weights->count(weight) > 0; });
  }

  /// Drops casts of weights that no longer exist or are not in use.
  void forget_unused() {
    if (casts_.size() < limit_) {
      return;
    }
    for (auto entry = casts_.begin(); entry != casts_.end();) {
      const WeightCast& known = entry->second;
      const bool kept = !known.weight.expired() && (known.in_window || known.is_in_use());
      entry = kept ? std::next(entry) : casts_.erase(entry);
    }
    limit_ = std::max(kLeastLimit, 2 * casts_.size());
  }

  static constexpr std::size_t kLeastLimit = 256;

  int holders_ = 0;
  Casts casts_;
  std::size_t limit_ = kLeastLimit;
  std::vector<const WeightSet*> windows_;
};

thread_local ThreadCasts thread_casts;

/// Whether autocast makes this cast for an operator: autocast is disabled there. A cast that the
/// program makes is not shared, since the program may change it.
bool is_by_autocast(const at::Tensor& tensor, at::ScalarType dtype) {
  const c10::DeviceType device = tensor.device().type();
  return (device == c10::kCPU || device == c10::kCUDA) &&
         !at::autocast::is_autocast_enabled(device) &&
         dtype == at::autocast::get_autocast_dtype(device);
}

bool is_weight(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.requires_grad() ||
      tensor.layout() != at::kStrided || tensor.numel() == 0 ||
      !tensor.is_non_overlapping_and_dense()) {
    return false;
  }
  const at::TensorBase& weight = weight_of(tensor);
  return weight.is_leaf() && weight.requires_grad();
}

at::Tensor to_dtype(c10::DispatchKeySet keys, const at::Tensor& tensor, at::ScalarType dtype,
                    bool non_blocking, bool copy, std::optional<at::MemoryFormat> format) {
  const bool shared = thread_casts.is_on() && c10::GradMode::is_enabled() && !copy &&
                      !format.has_value() && is_by_autocast(tensor, dtype) && is_weight(tensor);
  if (shared) {
    if (const at::Tensor* known = thread_casts.find(tensor, dtype)) {
      return *known;
    }
  }
  at::Tensor cast = at::_ops::to_dtype::redispatch(after_region_key(keys), tensor, dtype,
                                                   non_blocking, copy, format);
  if (shared) {
    thread_casts.add(tensor, cast);
  }
  return cast;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutocastIPU, library) {
  library.impl("to.dtype", &to_dtype);
}

SharedWeightCasts::SharedWeightCasts(bool enabled)
    : previous_cache_(at::autocast::is_autocast_cache_enabled()) {
  thread_casts.hold();
  at::autocast::set_autocast_cache_enabled(previous_cache_ && !enabled);
}

SharedWeightCasts::~SharedWeightCasts() {
  at::autocast::set_autocast_cache_enabled(previous_cache_);
  thread_casts.release();
}

void SharedWeightCasts::clear() {
  thread_casts.clear();
}

WeightCastScope::WeightCastScope(const WeightSet& weights) : weights_(&weights) {
  thread_casts.hold();
  thread_casts.open_window(weights_);
}

WeightCastScope::~WeightCastScope() {
  thread_casts.close_window(weights_);
  thread_casts.clear();
  thread_casts.release();
}

}  // namespace lockstep::amp
