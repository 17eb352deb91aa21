#include <ATen/ops/zeros.h>
#include <lockstep/runtime/arena.h>
#include <lockstep/runtime/flat.h>

namespace lockstep {

Arena::Arena(const std::vector<ModelTensor>& parameters, const std::vector<BucketPlan>& plans,
             const Precision& precision) {
  for (const BucketPlan& plan : plans) {
    Bucket bucket;
    bucket.weights = at::zeros({plan.numel}, plan.weight_dtype);
    if (plan.weight_dtype == at::kFloat) {
      bucket.masters = bucket.weights;
    } else if (precision.has_masters()) {
      bucket.masters = at::zeros({plan.numel}, at::kFloat);
    }
    for (const Slot& slot : plan.slots) {
      const ModelTensor& entry = parameters[static_cast<size_t>(slot.parameter)];
      const at::Tensor values = flat_alias(entry.tensor, entry.name);
      if (bucket.masters.defined()) {
        bucket.masters.narrow(0, slot.offset, slot.numel).copy_(values);
      }
      if (!bucket.masters.is_same(bucket.weights)) {
        bucket.weights.narrow(0, slot.offset, slot.numel).copy_(values);
      }
      entry.tensor.set_data(shaped_view(bucket.weights, slot.offset, entry.tensor));
    }
    buckets_.push_back(std::move(bucket));
  }
}

int64_t Arena::weight_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) {
    bytes += static_cast<int64_t>(bucket.weights.nbytes());
  }
  return bytes;
}

int64_t Arena::master_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.masters.defined() && !bucket.masters.is_same(bucket.weights)) {
      bytes += static_cast<int64_t>(bucket.masters.nbytes());
    }
  }
  return bytes;
}

void convert_storage(const std::vector<ModelTensor>& tensors, const Precision& precision) {
  for (const ModelTensor& entry : tensors) {
    const c10::ScalarType wanted = precision.storage_dtype(entry);
    if (wanted != entry.tensor.scalar_type()) {
      entry.tensor.set_data(entry.tensor.detach().to(wanted));
    }
  }
}

}  // namespace lockstep
