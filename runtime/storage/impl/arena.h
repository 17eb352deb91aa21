#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/node_memory.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>
#include <lockstep/runtime/storage/impl/shard.h>
#include <lockstep/runtime/storage/impl/versions.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Holds model weights, masters and averages in flat arrays, bucket by bucket, in the order and at
/// the offsets of the bucket plan. Each parameter keeps a StorageImpl of its own, whose data
/// pointer points into these arrays: the views of a parameter follow it. So an update is one pass
/// over flat arrays, and a snapshot is a view.
class Arena {
 public:
  struct Bucket {
    at::Tensor weights;  // the whole bucket, in the plan's weight dtype, as the model sees it
    /// The same memory for lockstep's writes. With Options::node another view: a write through it
    /// reaches all ranks of the node, one through `weights` stays with this rank.
    at::Tensor published;
    Shard share;         // this rank's part of the arrays below: all of it unless sharded
    at::Tensor masters;  // fp32; the weights themselves if they are fp32 or fp64; undefined at O3
    at::Tensor remainders;  // int16; replace the masters of bf16 weights
    at::Tensor average;     // the moving average of the masters, in their dtype, if it is kept
    at::Tensor storage;     // the memory of `published`, padded to equal shares
    std::vector<Slot> slots;
  };

  struct Options {
    bool averages = false;
    /// The ranks over which masters and averages are sharded. Unset: every rank has all of them.
    std::optional<Communicator> sharers;
    /// The memory of the weights, of node_bytes(), for all ranks of a node together. Null: each
    /// rank has its own.
    std::shared_ptr<NodeMemory> node;
    /// True: masters, remainders and averages of weights on a device are in host memory.
    bool offloads = false;
  };

  /// Moves `parameters` into flat storage on their device, in the plan's dtypes. `parameters` are
  /// those of the plan, in the plan's order, all on one device, and equal on all ranks. Masters
  /// take the present values, weights the values cast to the weight dtype, and averages the values
  /// of the masters. Local; with Options::node, weights are whole after the next collective.
  Arena(const std::vector<ModelTensor>& parameters, const std::vector<BucketPlan>& plans,
        const Precision& precision, Options options);

  /// Lays the parameters into this arena again, after another one of `plans` took them.
  void take_back(const std::vector<BucketPlan>& plans) const;

  const std::vector<Bucket>& buckets() const { return buckets_; }
  bool sharded() const { return sharers_.has_value(); }
  /// True if the ranks of a node have one copy of the weights.
  bool shared() const { return node_ != nullptr; }
  /// The bytes of Options::node.
  static size_t node_bytes(const std::vector<BucketPlan>& plans, int ranks);
  /// Gathers the weights that each rank updated in its shard to all ranks. Collective. Complete
  /// once the Work is; if all ranks have one copy, once that of the last bucket is. Does nothing if
  /// the arena is not sharded.
  Work share_weights(size_t bucket);
  /// The name of the first weight that the program of this rank wrote, if the arena is shared.
  std::optional<std::string> written_weight() const;
  /// The name of the first weight of this rank's shard that changed since note_writes(), if the
  /// arena is shared: there is no second copy to compare with.
  std::optional<std::string> changed_weight() const;
  /// Publishes what this rank wrote into shared weights, of the parts that it publishes. Every rank
  /// must have written the same. Requires shared(). Collective; no rank may read weights meanwhile.
  void publish_written();
  /// Waits until every rank has written its part in take_masters(). Collective if shared.
  void wait_for_node() const;

  /// What is saved of a bucket: the masters (or the weights where there are none), or the averages.
  enum class State { masters, averages };
  /// Whether this rank has the array whole.
  bool holds(State state, size_t bucket) const;
  /// The whole array, in the memory in which this rank keeps it. An alias if this rank holds it,
  /// else a copy. Collective if sharded.
  at::Tensor whole(State state, size_t bucket) const;
  /// A tensor of its size and dtype on the meta device.
  at::Tensor outline(State state, size_t bucket) const;
  /// A tensor into which the array can be written for take(), with any content.
  at::Tensor room(State state, size_t bucket) const;
  /// The same of masters, with their present values; of what other ranks hold, with the weights'.
  /// The memory of the masters themselves, if this rank holds them.
  at::Tensor filled_room(size_t bucket) const;
  /// Takes over the values of a tensor from room(), which must be equal on every rank; of masters,
  /// refreshes the weights. Local; if shared, no rank may read weights meanwhile, and a collective
  /// must follow before one does: wait_for_node(), if there is no other.
  void take(State state, size_t bucket, const at::Tensor& values);
  /// Call it after the masters of all buckets were taken.
  void end_taking();
  /// The same for all buckets. Averages: empty if none are kept.
  std::vector<at::Tensor> whole_masters() const { return whole(State::masters); }
  std::vector<at::Tensor> room_for_masters() const { return room(State::masters); }
  void take_masters(const std::vector<at::Tensor>& whole);
  std::vector<at::Tensor> whole_averages() const { return whole(State::averages); }
  std::vector<at::Tensor> room_for_averages() const { return room(State::averages); }
  void take_averages(const std::vector<at::Tensor>& whole);
  /// The arrays that this rank writes in an update or in take(): weights, masters, averages. Who
  /// writes into them calls end_taking().
  std::vector<at::Tensor> own_arrays() const;

  /// Tells LibTorch that the parameters changed. Call it after weights were, or may have been,
  /// `written` through `buckets()`. The functions above that write weights call it.
  void note_writes(bool written = true) const {
    if (written) {
      detail::note_writes(parameters_);
      ++writes_;
      note_digests();
    }
  }
  /// How often note_writes() advanced the version of each parameter.
  uint32_t writes() const { return writes_; }

  /// True if averages are kept: the same on every rank, even if all its shards are empty.
  bool has_averages() const { return buckets_.front().average.defined(); }
  /// Of a copy that ranks share, this rank's part.
  int64_t weight_bytes() const;
  /// Bytes of remainders, and of masters that are not the weights themselves.
  int64_t master_bytes() const;
  int64_t average_bytes() const;

 private:
  void add_bucket(const std::vector<ModelTensor>& parameters, const BucketPlan& plan,
                  const Precision& precision, bool averages);
  /// A copy of what this rank keeps of a state.
  at::Tensor kept(const at::Tensor& state) const;
  template <typename Form>
  void each_digest(const Form& form) const;
  void note_digests() const;
  void publish(const Bucket& bucket, const at::Tensor& values) const;
  /// The parts of a bucket's weights that this rank writes in publish(), if shared.
  std::vector<Shard> published_parts(int64_t numel) const;
  at::Tensor gathered(const at::Tensor& own, const Bucket& bucket) const;
  size_t buckets_with(State state) const;
  std::vector<at::Tensor> whole(State state) const;
  std::vector<at::Tensor> room(State state) const;

  std::vector<ModelTensor> parameters_;
  std::optional<Communicator> sharers_;
  std::shared_ptr<NodeMemory> node_;
  bool offloads_;
  size_t node_begin_ = 0;  // bytes of node_ that buckets have by now
  std::vector<Bucket> buckets_;
  mutable uint32_t writes_ = 0;
  mutable std::vector<uint64_t> digests_;  // of this rank's part of each weight, if shared
};

/// One leaf tensor per parameter, in registration order. The tensors are views of flat arrays that
/// are laid out as in `plans`.
std::vector<at::Tensor> parameter_views(const std::vector<at::Tensor>& flats,
                                        const std::vector<ModelTensor>& parameters,
                                        const std::vector<BucketPlan>& plans);

}  // namespace lockstep::detail
