#pragma once

#include <lockstep/amp/feedback_state.h>
#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/bucket_plan.h>
#include <lockstep/runtime/gradient_hooks.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct ReducerOptions {
  ReduceOp op = ReduceOp::avg();
  bool densify_sparse = false;
  /// True (Trainer): the reducer takes each gradient of the backwards that it runs, see
  /// take_from(): grad() becomes undefined as soon as it is packed or added to the fp32
  /// accumulators. False (DataParallel): it sees every backward, and gradients stay in grad().
  bool take_gradients = false;
  /// fp32 accumulators for windows of several micro-batches; needs take_gradients.
  bool accumulators = false;
  /// What 16-bit wires lost is added to the next window's gradients: Precision::error_feedback.
  bool error_feedback = false;
};

/// Each bucket's flat gradients in the wire dtype, in the memory in which `communicator` is
/// fastest. Collective; without memory on one rank an Error (out_of_memory) on every rank.
std::vector<at::Tensor> allocate_wires(Communicator& communicator,
                                       const std::vector<BucketPlan>& plans);

/// Packs gradients into flat buckets as backward produces them, and all-reduces each bucket as
/// soon as it and those before it are full, always in bucket order.
///
/// A window: any number of collecting backwards, then one synchronising backward, then launch_rest
/// and wait for every bucket, then reset. Ranks: the same windows on every rank.
/// Errors inside hooks are kept (problem()) rather than thrown, since only one rank may have them:
/// the owner shares them and throws on all ranks. A gradient that comes to DataParallel where
/// finish() was to be called is thrown as well: its loop may never call that.
class Reducer {
 public:
  /// `wires`: allocate_wires(). Local.
  Reducer(Communicator communicator, std::vector<ModelTensor> parameters,
          std::vector<BucketPlan> plans, std::vector<at::Tensor> wires, ReducerOptions options);

  /// Between windows: other parameters, in other buckets. Residuals of those that stay are kept.
  void lay_out(std::vector<ModelTensor> parameters, std::vector<BucketPlan> plans,
               std::vector<at::Tensor> wires);

  /// What the coming backwards do: collect only, or synchronise with this factor on every
  /// gradient as it is packed.
  void collect() { synchronising_ = false; }
  void synchronise(double factor);

  /// With take_gradients: runs a backward, and takes its gradients. What others left in grad() is
  /// dropped before. A backward that is run in any other way is the program's own: its gradients
  /// are summed in grad(), as without a reducer. Where a micro-batch has several backwards, `last`
  /// is false but for its last one. `form`: what is taken of each gradient.
  using Form = std::function<at::Tensor(const at::Tensor&)>;
  void take_from(const std::function<void()>& backward, const Form& form = {}, bool last = true);

  /// After the synchronising backward: buckets that miss a gradient get zeros for it (or what
  /// earlier backwards collected) and all are on their way. Parameters with no gradient at all are
  /// in unused() afterwards.
  void launch_rest();
  const std::vector<int>& unused() const { return unused_; }
  void wait(size_t bucket) { works_[bucket].wait(); }
  void wait_all();
  /// Lets the other ranks finish a window that this one gives up: launch_rest() and wait_all().
  void drain();
  /// Ends the window: nothing is ready any more.
  void reset();

  /// The first error met by a hook in this window.
  const std::optional<Error>& problem() const { return problem_; }
  /// True if any backward of this window reached a parameter.
  bool touched() const { return touched_any_; }

  const std::vector<ModelTensor>& parameters() const { return parameters_; }
  const std::vector<BucketPlan>& plans() const { return plans_; }
  size_t size() const { return plans_.size(); }
  /// Bucket b's flat gradients in the wire dtype; after wait(b) the reduced ones.
  const at::Tensor& wire(size_t bucket) const { return wires_[bucket]; }
  int64_t accumulator_bytes() const;
  int64_t residual_bytes() const;
  /// With error feedback: where windows find what is kept of the residuals, in the memory of the
  /// device. Before the first window.
  void follow(const amp::FeedbackState* feedback) { feedback_ = feedback; }
  /// Bucket b's residuals, fp32 of shape {2, n}: amp::FeedbackState says which are kept. Empty
  /// without error feedback.
  const std::vector<at::Tensor>& residuals() const { return residuals_; }

 private:
  struct Place {
    size_t bucket;
    int64_t offset;
  };
  void on_gradient(int index);
  void drop_gradients();
  bool left_something(int index) const;
  /// DataParallel: throws from a backward that comes where finish() was to be called.
  void require_finished(int index);
  void take(int index, const at::Tensor& gradient);
  void pack(int index, const at::Tensor& gradient);
  void pack_nothing(int index);
  void pack_with_feedback(int index, const at::Tensor& gradient);
  void accumulate(int index, const at::Tensor& gradient);
  void pack_collected(int index);
  void mark_ready(int index);
  void launch_ready();
  at::Tensor dense_gradient(int index);
  at::Tensor slot(const std::vector<at::Tensor>& flats, int index) const;
  at::Tensor residual_of(int index) const;

  Communicator communicator_;
  std::vector<ModelTensor> parameters_;
  std::vector<BucketPlan> plans_;
  ReducerOptions options_;
  std::vector<Place> places_;
  std::vector<at::Tensor> wires_;
  std::vector<at::Tensor> accumulators_;
  std::vector<at::Tensor> residuals_;
  const amp::FeedbackState* feedback_ = nullptr;

  bool taking_ = false;         // inside take_from()
  bool last_backward_ = true;   // of its micro-batch
  const Form* form_ = nullptr;  // of the backward at hand
  bool synchronising_ = true;
  double factor_ = 1.0;
  bool touched_any_ = false;
  std::vector<char> collected_;  // earlier backwards of this window left something
  std::vector<char> ready_;      // packed in the synchronising backward
  std::vector<int64_t> pending_;
  size_t next_bucket_ = 0;
  std::vector<Work> works_;
  std::vector<int> unused_;
  std::optional<Error> problem_;

  std::unique_ptr<GradientHooks> hooks_;  // last: hooks die first
};

}  // namespace lockstep
