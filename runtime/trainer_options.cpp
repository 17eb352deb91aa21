#include <lockstep/collectives/check.h>
#include <lockstep/runtime/trainer_options.h>

#include <cmath>

namespace lockstep {

void TrainerOptions::validate() const {
  precision_.validate();
  LOCKSTEP_CHECK(accumulate_ >= 1, "TrainerOptions.accumulate must be >= 1, is ", accumulate_);
  LOCKSTEP_CHECK(losses_ >= 1, "TrainerOptions.losses must be >= 1, is ", losses_);
  LOCKSTEP_CHECK(clip_grad_norm_ > 0.0, "TrainerOptions.clip_grad_norm must be > 0, is ",
                 clip_grad_norm_);
  LOCKSTEP_CHECK(diagnose_after_skips_ >= 0,
                 "TrainerOptions.diagnose_after_skips must be >= 0, is ", diagnose_after_skips_);
  LOCKSTEP_CHECK(compare_replicas_every_ >= 0,
                 "TrainerOptions.compare_replicas_every must be >= 0, is ",
                 compare_replicas_every_);
  LOCKSTEP_CHECK(clip_grad_value_ > 0.0, "TrainerOptions.clip_grad_value must be > 0, is ",
                 clip_grad_value_);
  LOCKSTEP_CHECK(ema_ >= 0.0 && ema_ < 1.0, "TrainerOptions.ema must be >= 0 and < 1, is ", ema_);
  LOCKSTEP_CHECK(buckets_.first_bucket_bytes() > 0 && buckets_.bucket_bytes() >= 0,
                 "TrainerOptions.buckets: first_bucket_bytes must be > 0, bucket_bytes >= 0");
  LOCKSTEP_CHECK(activation_chain_.is_empty() || !activation_budget_.is_unlimited(),
                 "TrainerOptions.activation_chain needs an activation_budget");
  if (reduce_on_plateau_) {
    reduce_on_plateau_->validate();
  }
  LOCKSTEP_CHECK(!snapshots_.memory_folder().empty() || snapshots_.memory_every() == 0,
                 "SnapshotOptions.memory_folder is empty; name a folder in memory, as /dev/shm");
  LOCKSTEP_CHECK(digest_every_ >= 1, "TrainerOptions.digest_every must be >= 1, is ",
                 digest_every_);
  LOCKSTEP_CHECK(leaves_ >= 0, "TrainerOptions.leaves must be >= 0, is ", leaves_);
  LOCKSTEP_CHECK(reproducible_ || leaves_ == 0,
                 "TrainerOptions.leaves needs reproducible(true); without it, use accumulate");
  if (cuda_graph_) {
    validate_cuda_graph();
  }
  if (reproducible_) {
    validate_reproducible();
  }
  if (local_updates_) {
    validate_local_updates();
  }
}

void TrainerOptions::validate_local_updates() const {
  local_updates_->validate();
  constexpr const char* why = "TrainerOptions.local_updates: ";
  LOCKSTEP_CHECK(!shard_optimizer_, why,
                 "each rank updates all of its own weights; use shard_optimizer(false)");
  LOCKSTEP_CHECK(!cuda_graph_, why,
                 "a captured graph cannot exchange weights in some windows only; use "
                 "cuda_graph(false)");
  LOCKSTEP_CHECK(!reproducible_, why,
                 "updates with a rank's own gradients depend on the number of ranks; use "
                 "reproducible(false)");
  LOCKSTEP_CHECK(losses_ == 1, why, "losses must be 1, is ", losses_);
  LOCKSTEP_CHECK(ema_ == 0.0, why, "each rank would average its own weights; use ema(0)");
  LOCKSTEP_CHECK(!precision_.feeds_errors_back(), why,
                 "gradients do not travel; use error_feedback(false)");
  LOCKSTEP_CHECK(digest_log_.empty(), why,
                 "at the end of a round the memory of the gradients has differences of weights; "
                 "leave digest_log out");
  LOCKSTEP_CHECK(
      !precision_.names_wire() || precision_.wire_dtype() == at::kFloat, why,
      "differences of weights travel in fp32; leave Precision::wire() out (on some processors "
      "Precision::automatic() calls it: use O0, O1 or O2)");
}

void TrainerOptions::validate_reproducible() const {
  constexpr const char* why = "TrainerOptions.reproducible: ";
  LOCKSTEP_CHECK(!cuda_graph_, why,
                 "a captured graph repeats the random numbers of its ranks; use cuda_graph(false)");
  LOCKSTEP_CHECK(!uneven_data_, why,
                 "with uneven_data ranks run out of data by themselves; deal the samples with "
                 "LoaderOptions().leaves(), which also shares out the end of an epoch");
  LOCKSTEP_CHECK(!precision_.feeds_errors_back(), why,
                 "the residuals of error feedback belong to ranks; use error_feedback(false)");
  LOCKSTEP_CHECK(precision_.predivide_factor() == 1.0, why,
                 "the sum is exact and knows no predivide; use predivide(1)");
  LOCKSTEP_CHECK(buffers_ != BufferPolicy::none, why,
                 "with BufferPolicy::none each rank keeps buffers of its own; use "
                 "BufferPolicy::broadcast");
}

void TrainerOptions::validate_cuda_graph() const {
  constexpr const char* why = "TrainerOptions.cuda_graph records a window whole: ";
  LOCKSTEP_CHECK(accumulate_ == 1, why, "accumulate must be 1, is ", accumulate_);
  LOCKSTEP_CHECK(losses_ == 1, why, "losses must be 1, is ", losses_);
  LOCKSTEP_CHECK(digest_log_.empty(), why, "a digest_log reads every loss");
  LOCKSTEP_CHECK(!uneven_data_, why, "with uneven_data the host decides what a window counts");
  LOCKSTEP_CHECK(unused_ != UnusedParameters::detect, why,
                 "with UnusedParameters::detect the host decides what is updated");
  LOCKSTEP_CHECK(activation_budget_.is_unlimited(), why,
                 "an activation_budget measures on the host");
}

std::string TrainerOptions::describe() const {
  const auto limit = [](double value) {
    return value < std::numeric_limits<float>::max() ? c10::str(value) : "none";
  };
  return c10::str(precision_.describe(), ", accumulate ", accumulate_, ", clip_grad_norm ",
                  limit(clip_grad_norm_), ", clip_grad_value ", limit(clip_grad_value_), ", ema ",
                  ema_, ", shard_optimizer ", shard_optimizer_, ", schedule ", schedule_.describe(),
                  ", ", reduce_on_plateau_ ? reduce_on_plateau_->describe() + ", " : "", "unused ",
                  static_cast<int>(unused_), ", buffers ", static_cast<int>(buffers_), ", buckets ",
                  buckets_.first_bucket_bytes(), " ", buckets_.bucket_bytes(), ", densify_sparse ",
                  densify_sparse_, ", uneven_data ", uneven_data_, ", compare_replicas_every ",
                  compare_replicas_every_, ", diagnose_after_skips ", diagnose_after_skips_,
                  ", activation_budget ", activation_budget_.text(), ", cuda_graph ", cuda_graph_,
                  losses_ > 1 ? c10::str(", losses ", losses_) : std::string(),
                  reproducible_ ? c10::str(", reproducible, leaves ", leaves_) : std::string(),
                  local_updates_ ? ", " + local_updates_->describe() : std::string());
}

}  // namespace lockstep
