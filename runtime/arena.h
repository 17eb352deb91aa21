#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/bucket_plan.h>
#include <lockstep/runtime/shard.h>

#include <optional>
#include <vector>

namespace lockstep {

/// Model weights and what the optimizer moves in flat arrays, bucket by bucket, in the order and at
/// the offsets of the bucket plan; the model's parameters become views of them. So an update is one
/// pass over flat arrays, and a snapshot is a view.
class Arena {
 public:
  struct Bucket {
    at::Tensor weights;     // whole, the dtype the plan names
    Shard share;            // what this rank keeps the following of: all, unless it is sharded
    at::Tensor masters;     // fp32; the weights themselves where those are fp32; undefined at O3
    at::Tensor remainders;  // int16, instead of masters beside bf16 weights
    at::Tensor average;     // fp32: the moving average of the masters, if there is one
    at::Tensor storage;     // the weights' memory, padded to equal shares
  };

  struct Options {
    bool averages = false;
    /// The ranks over which masters and averages are spread; none: every rank has all.
    std::optional<Communicator> sharers;
  };

  /// Local. Moves `parameters` (the plan's, in its order, all on one device, alike on all ranks)
  /// into flat storage there, of the plan's dtypes. Masters take the parameters' values as they
  /// are, weights the cast of those, averages the masters.
  Arena(const std::vector<ModelTensor>& parameters, const std::vector<BucketPlan>& plans,
        const Precision& precision, Options options);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  bool sharded() const { return sharers_.has_value(); }
  /// Brings the weights that every rank updated in its own share to all ranks. Collective;
  /// complete once the Work is. Nothing happens where nothing is sharded.
  Work share_weights(size_t bucket);

  /// fp32 masters (weights where there are none), whole: aliases where this rank has them so, else
  /// copies. Collective if sharded.
  std::vector<at::Tensor> whole_masters() const;
  /// Where all masters may be written for take_masters(): as whole_masters(), with any content.
  std::vector<at::Tensor> room_for_masters() const;
  /// Takes over what was written to these tensors, the same on every rank, and refreshes the
  /// weights.
  void take_masters(const std::vector<at::Tensor>& whole);
  /// The averages, whole, as whole_masters(); empty if there are none.
  std::vector<at::Tensor> whole_averages() const;
  std::vector<at::Tensor> room_for_averages() const;
  void take_averages(const std::vector<at::Tensor>& whole);

  /// The same on every rank, also on one whose shares are all empty.
  bool has_averages() const { return buckets_.front().average.defined(); }
  int64_t weight_bytes() const;
  /// Bytes of masters that are not the weights themselves, and of remainders.
  int64_t master_bytes() const;
  int64_t average_bytes() const;

 private:
  void add_bucket(const std::vector<ModelTensor>& parameters, const BucketPlan& plan,
                  const Precision& precision, bool averages);
  template <typename Form>
  std::vector<at::Tensor> averages(const Form& form) const;
  at::Tensor whole(const at::Tensor& own, const Bucket& bucket) const;
  /// `own` if that is all of it.
  at::Tensor room(const at::Tensor& own, const Bucket& bucket) const;

  std::optional<Communicator> sharers_;
  std::vector<Bucket> buckets_;
};

/// One leaf tensor per parameter, in registration order: views of flat arrays laid out as the
/// plans say.
std::vector<at::Tensor> parameter_views(const std::vector<at::Tensor>& flats,
                                        const std::vector<ModelTensor>& parameters,
                                        const std::vector<BucketPlan>& plans);

}  // namespace lockstep
