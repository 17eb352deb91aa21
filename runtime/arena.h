#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/runtime/bucket_plan.h>

#include <vector>

namespace lockstep {

/// Model weights and fp32 masters in flat arrays, bucket by bucket, in the order and at the offsets
/// of the bucket plan; the model's parameters become views of them. So an update is one pass over
/// flat arrays, and a snapshot is a view.
class Arena {
 public:
  struct Bucket {
    at::Tensor weights;  // the dtype the plan names
    at::Tensor masters;  // fp32; the same tensor as weights where those are fp32; undefined at O3
  };

  /// Moves `parameters` (the plan's, in its order) into flat storage of the plan's dtypes. Masters
  /// take the parameters' values as they are, weights the cast of those.
  Arena(const std::vector<ModelTensor>& parameters, const std::vector<BucketPlan>& plans,
        const Precision& precision);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  int64_t weight_bytes() const;
  /// Bytes of masters that are not the weights themselves.
  int64_t master_bytes() const;

 private:
  std::vector<Bucket> buckets_;
};

/// Gives frozen parameters and buffers the dtype that `precision` wants; integers stay.
void convert_storage(const std::vector<ModelTensor>& tensors, const Precision& precision);

}  // namespace lockstep
