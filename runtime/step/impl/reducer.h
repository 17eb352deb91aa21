#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/decision.h>
#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/gradient_hooks.h>
#include <lockstep/runtime/step/impl/leaf_sums.h>
#include <lockstep/runtime/step/impl/wires.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>
#include <lockstep/runtime/storage/impl/shard.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

struct ReducerOptions {
  /// With take_gradients the result is a mean also for sum: packing divides by the number of ranks.
  ReduceOp op = ReduceOp::avg();
  bool densify_sparse = false;
  /// True (Trainer): the reducer takes the gradients of the backwards that take_from() runs. grad()
  /// becomes undefined as soon as the gradient is packed or added to the fp32 accumulators. False
  /// (DataParallel): the reducer sees every backward, and gradients stay in grad().
  bool take_gradients = false;
  /// True: keep accumulators (fp64 for fp64 parameters, else fp32) for windows of several
  /// micro-batches. Requires take_gradients.
  bool accumulators = false;
  /// True: a rank gets the reduced gradients of its Shard of each bucket alone, with a
  /// reduce_scatter in place of an all_reduce.
  bool scatter = false;
  /// Not 0: gradients of all ranks are summed exactly, as those of this many leaves (LeafSums).
  /// The arrays of LeafSums travel, and wire() is what they are read into. Requires take_gradients.
  int64_t leaves = 0;
};

/// Packs gradients into flat buckets as backward produces them, complex ones as their real view.
/// Starts the all-reduce of a bucket as soon as this bucket and all earlier ones are full, so
/// always in bucket order.
///
/// With a ring of wires (Wires) a bucket gets its wire once the bucket `ring` before it is reduced;
/// until then its gradients stay alive. launch_rest() waits for that. Whether a hook does depends
/// on who waits:
/// - where the device does (NCCL), a hook waits always, so that the ranks issue the collectives of
///   all communicators in the order of their hooks
/// - on hosts it does not: other ranks may not come so far before this one goes on (a collective in
///   backward, unused parameters)
/// - for a device whose collectives go over the host, which is a whole backward ahead, it waits up
///   to kPatience seconds after the device has done its part. If that is in vain in two windows one
///   after the other, the next hundred windows do without.
///
/// A window has any number of collecting backwards and one synchronising backward, then
/// launch_rest(), wait() for every bucket, and reset(). Ranks: every rank runs the same windows.
/// Errors inside hooks are stored (see problem()), since only one rank may have them. The owner
/// shares the errors and throws on all ranks. Exception: if DataParallel gets a gradient where
/// finish() had to be called, the hook also throws, since that loop may never call finish().
class Reducer {
 public:
  static constexpr double kPatience = 1.0;

  /// `wires`: the tensors from allocate_wires(). `leaf_sums`: with ReducerOptions::leaves, those
  /// from LeafSums::allocate(). Local.
  Reducer(Communicator communicator, std::vector<ModelTensor> parameters,
          std::vector<BucketPlan> plans, Wires wires, ReducerOptions options,
          std::vector<at::Tensor> leaf_sums = {});

  /// Replaces parameters and buckets. Call it between windows.
  void lay_out(std::vector<ModelTensor> parameters, std::vector<BucketPlan> plans, Wires wires,
               std::vector<at::Tensor> leaf_sums = {});

  /// Selects what the next backwards do. collect(): only collect gradients. synchronise(): also
  /// pack each gradient, multiplied by `factor`, and reduce it. With ReducerOptions::leaves,
  /// `factor` multiplies the sum of all leaves.
  void collect() { synchronising_ = false; }
  void synchronise(double factor);

  /// With take_gradients: runs `backward` and takes its gradients. First drops gradients that other
  /// backwards left in grad(). The program itself may run other backwards: their gradients are
  /// summed in grad(), as without a reducer. If a micro-batch has several backwards, pass `last` =
  /// false for all but the last. `form` is applied to each gradient before it is taken.
  using Form = std::function<at::Tensor(const at::Tensor&)>;
  void take_from(const std::function<void()>& backward, const Form& form = {}, bool last = true);

  /// Call after the synchronising backward. Fills missing gradients of a bucket with zeros, or with
  /// what earlier backwards collected, and starts all remaining reductions. Afterwards unused()
  /// lists the parameters that have no gradient at all.
  void launch_rest();
  const std::vector<int>& unused() const { return unused_; }
  void wait(size_t bucket);
  void wait_all();
  /// Completes the collectives of a window that this rank gives up, so that the other ranks can
  /// finish it: launch_rest() and wait_all().
  void drain();
  /// Ends the window and resets its state.
  void reset();

  /// The first error in a hook of this window.
  const std::optional<Error>& problem() const { return problem_; }
  /// True if any backward of this window reached a parameter.
  bool touched() const { return touched_any_; }

  const std::vector<ModelTensor>& parameters() const { return parameters_; }
  const std::vector<BucketPlan>& plans() const { return plans_; }
  size_t size() const { return plans_.size(); }
  /// The flat gradients of a bucket in the wire dtype; after wait(bucket) the reduced ones. Not for
  /// a reducer that scatters: there gradient() alone has them.
  const at::Tensor& wire(size_t bucket) const { return wires_[bucket]; }
  /// The reduced gradients of `part`, after wait(bucket). If the reducer scatters, `part` is
  /// own_shard(). Always the same memory.
  at::Tensor gradient(size_t bucket, const Shard& part) const;
  bool scatters() const { return options_.scatter; }
  /// The part of a bucket that this rank gets reduced.
  Shard own_shard(size_t bucket) const;
  /// The parts in which a bucket is measured: the ranks' shards, scattered or not.
  amp::MeasuredParts measured_parts(size_t bucket) const;
  int64_t wire_bytes() const { return ring_.bytes; }
  int64_t accumulator_bytes() const;

 private:
  struct Place {
    size_t bucket;
    int64_t offset;
    int64_t numel;  // real numbers: two of each complex one
    size_t slot;
  };
  void on_gradient(int index);
  void drop_gradients();
  bool left_something(int index) const;
  /// DataParallel: throws if a backward reaches a parameter again before finish().
  void require_finished(int index);
  void take(int index, const at::Tensor& gradient);
  void take_leaf(int index, const at::Tensor& gradient, bool packs);
  void pack(int index, const at::Tensor& gradient);
  void pack_nothing(int index);
  void pack_waiting(size_t bucket);
  void accumulate(int index, const at::Tensor& gradient);
  void pack_collected(int index);
  void mark_ready(int index);
  /// `waits`: for the wires of full buckets.
  void launch_ready(bool waits = false);
  /// Gives a bucket its wire if the bucket that had it is reduced. False: not yet.
  bool take_wire(size_t bucket, bool waits);
  bool comes_soon(Work& work);
  void note_patience();
  void clear_gaps(size_t bucket);
  void keep_shards(size_t last);
  Work reduced(size_t bucket) const;
  /// The gradient as a dense tensor; if complex, its real view.
  at::Tensor dense_gradient(int index);
  at::Tensor slot(const std::vector<at::Tensor>& flats, int index) const;

  Communicator communicator_;
  std::vector<ModelTensor> parameters_;
  std::vector<BucketPlan> plans_;
  ReducerOptions options_;
  std::vector<Place> places_;
  Wires ring_;
  std::vector<at::Tensor> wires_;              // those of ring_ without their padding
  std::vector<std::vector<at::Tensor>> gaps_;  // with a ring: what no slot of a bucket covers
  size_t wires_taken_ = 0;                     // with a ring: buckets that have or had their wire
  size_t shards_kept_ = 0;                     // and those whose shards have left it
  bool device_waits_ = false;                  // for a collective, not the host
  bool waited_in_vain_ = false;                // in this window
  bool vain_before_ = false;                   // in the last window that waited
  int impatient_windows_ = 0;                  // that are left
  std::vector<at::Tensor> accumulators_;
  std::optional<LeafSums> leaf_sums_;

  bool taking_ = false;         // inside take_from()
  bool last_backward_ = true;   // of the micro-batch
  const Form* form_ = nullptr;  // of the current backward
  bool synchronising_ = true;
  double factor_ = 1.0;
  bool touched_any_ = false;
  std::vector<char> collected_;  // 1: an earlier backward of this window left a gradient
  std::vector<char> ready_;      // 1: packed in the synchronising backward
  std::vector<int64_t> pending_;
  /// The gradients of a bucket in device memory, or without a wire, that are not packed yet, and
  /// their slots. The last gradient of the bucket packs them all, on a device with one launch.
  struct Waiting {
    std::vector<at::Tensor> slots, gradients;
    std::vector<at::Tensor> zeros;  // slots of parameters without gradient
  };
  std::vector<Waiting> waiting_;
  size_t next_bucket_ = 0;
  std::vector<Work> works_;
  std::vector<int> unused_;
  std::optional<Error> problem_;

  std::unique_ptr<GradientHooks> hooks_;  // last member: destroyed first
};

}  // namespace lockstep::detail
