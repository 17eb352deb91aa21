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
    result_.resize(static_cast<size_t>(n) * c10::elementSize(dtype_));
    inter_node_->reduce_slice(reduction_, sources, {result_.data(), n, dtype_});
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

}  // namespace lockstep::detail
