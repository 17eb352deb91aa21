#include <lockstep/collectives/host/slice_sum.h>

#include <algorithm>

namespace lockstep::detail {

bool SliceSum::run(const std::vector<const void*>& sources, const std::vector<void*>& destinations,
                   int64_t n) {
  if (inter_node_ == nullptr) {
    kernels::reduce(reduction_, dtype_, sources.data(), static_cast<int>(sources.size()), dtype_,
                    destinations.data(), static_cast<int>(destinations.size()), n);
    return true;
  }
  if (!exchanging_) {
    start(sources, n);
  }
  exchanging_ = !inter_node_->slice_is_reduced();
  if (exchanging_) {
    return false;
  }
  for (void* destination : destinations) {
    std::copy(result_.begin(), result_.end(), static_cast<char*>(destination));
  }
  return true;
}

void SliceSum::start(const std::vector<const void*>& sources, int64_t n) {
  result_.resize(static_cast<size_t>(n) * c10::elementSize(dtype_));
  if (inter_node_->nodes_are_ranks()) {
    inter_node_->reduce_slice(reduction_, dtype_, static_cast<const char*>(sources[0]), dtype_,
                              result_.data(), n);
    return;
  }
  const bool is_16_bit = dtype_ == c10::kHalf || dtype_ == c10::kBFloat16;
  const c10::ScalarType partial_dtype = is_16_bit ? c10::kFloat : dtype_;
  partial_.resize(static_cast<size_t>(n) * c10::elementSize(partial_dtype));
  void* destination = partial_.data();
  kernels::Reduction local = reduction_;
  local.divisor = 1.0;
  kernels::reduce(local, dtype_, sources.data(), static_cast<int>(sources.size()), partial_dtype,
                  &destination, 1, n);
  kernels::Reduction rest = reduction_;
  rest.before = 1.0;
  inter_node_->reduce_slice(rest, partial_dtype, partial_.data(), dtype_, result_.data(), n);
}

}  // namespace lockstep::detail
