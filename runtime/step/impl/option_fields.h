#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/precision_options.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/checkpointing/snapshot/impl/writer_options.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/option_list.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/trainer_options.h>

#include <string>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_OPTION_NAMES(UnusedParameters, "error", "zeros", "detect");
LOCKSTEP_OPTION_NAMES(BufferPolicy, "none", "broadcast", "average");
LOCKSTEP_OPTION_NAMES(ReduceOp::Kind, "sum", "max", "avg", "min");
LOCKSTEP_OPTION_NAMES(ReduceOnPlateau::Mode, "min", "max");
LOCKSTEP_OPTION_NAMES(ReduceOnPlateau::Threshold, "rel", "abs");

template <>
inline std::string text_of(const Schedule& schedule) {
  return schedule.describe();
}
template <>
inline std::string text_of(const ActivationBudget& budget) {
  const bool is_rule = budget.is_unlimited() || budget.is_automatic() || budget.is_least();
  return is_rule ? budget.text() : c10::str(budget.bytes(), " B");  // text() rounds
}
template <>
inline std::string text_of(const MemoryBudget& budget) {
  return budget.is_unlimited() ? budget.text() : c10::str(budget.bytes(), " B");
}
template <>
inline std::string text_of(const PlannedChain& chain) {
  return chain.is_empty() ? "unset" : "set";
}
template <>
inline std::string text_of(const ReduceOp& reduce) {
  return c10::str(text_of(reduce.kind()), ", predivide ", shortest(reduce.predivide_factor()));
}

LOCKSTEP_OPTION_LIST(BucketOptions) {
  visit("first_bucket_bytes", options.first_bucket_bytes(), "> 0");
  visit("bucket_bytes", options.bucket_bytes(), ">= 0");
}

LOCKSTEP_OPTION_LIST(LocalUpdates) {
  visit("updates", options.updates(), ">= 1");
  visit("outer_lr", options.outer_lr(), "> 0");
  visit("outer_momentum", options.outer_momentum(), ">= 0 and < 1");
  visit("outer_nesterov", options.outer_nesterov());
  visit("average_moments", options.average_moments());
}

LOCKSTEP_OPTION_LIST(ReduceOnPlateau) {
  visit("factor", options.factor(), "> 0 and < 1");
  visit("patience", options.patience(), ">= 0");
  visit("mode", options.mode());
  visit("threshold", options.threshold(), ">= 0");
  visit("threshold_mode", options.threshold_mode());
  visit("cooldown", options.cooldown(), ">= 0");
  visit("min_lr", options.min_lr(), ">= 0");
  visit("eps", options.eps(), ">= 0");
}

LOCKSTEP_OPTION_LIST(SnapshotOptions) {
  visit("folder", options.folder());
  visit("asynchronous", options.asynchronous());
  visit("keep", options.keep());
  visit("min_shard_bytes", options.min_shard_bytes(), ">= 1");
  visit("memory_every", options.memory_every(), ">= 0");
  visit("memory_folder", options.memory_folder());
}

LOCKSTEP_OPTION_LIST(TrainerOptions) {
  visit("precision", options.precision());
  visit("accumulate", options.accumulate(), ">= 1");
  visit("losses", options.losses(), ">= 1");
  visit("uneven_data", options.uneven_data());
  visit("schedule", options.schedule());
  visit("reduce_on_plateau", options.reduce_on_plateau());
  visit("clip_grad_norm", options.clip_grad_norm(), "> 0");
  visit("clip_grad_value", options.clip_grad_value(), "> 0");
  visit("ema", options.ema(), ">= 0 and < 1");
  visit("unused", options.unused());
  visit("densify_sparse", options.densify_sparse());
  visit("buffers", options.buffers());
  visit("reproducible", options.reproducible());
  visit("leaves", options.leaves(), ">= 0");
  visit("local_updates", options.local_updates());
  visit("shard_optimizer", options.shard_optimizer());
  visit("share_weights", options.share_weights());
  visit("offload_states", options.offload_states());
  visit("memory", options.memory(), kNotDescribed);
  visit("buckets", options.buckets());
  visit("activation_budget", options.activation_budget());
  visit("activation_chain", options.activation_chain(), kNotDescribed);
  visit("cuda_graph", options.cuda_graph());
  visit("snapshots", options.snapshots(), kNotDescribed);
  visit("compare_replicas_every", options.compare_replicas_every(), ">= 0");
  visit("diagnose_after_skips", options.diagnose_after_skips(), ">= 0");
  visit("diagnosis_folder", options.diagnosis_folder(),
        {"", /*described=*/false, "each rank writes files of its own"});
  visit("digest_log", options.digest_log(), kNotDescribed);
  visit("digest_every", options.digest_every(), {">= 1", /*described=*/false});
}

LOCKSTEP_OPTION_LIST(DataParallelOptions) {
  visit("buckets", options.buckets());
  visit("wire", options.wire());
  visit("reduce", options.reduce());
  visit("unused", options.unused());
  visit("buffers", options.buffers());
  visit("densify_sparse", options.densify_sparse());
}

/// Two options of a Trainer that exclude each other, or of which one needs the other. They are
/// refused if `option` is neither the default nor false, and `with` has one of `values` (separated
/// by blanks; "": any but the default). `why` ends the message; the value of `with` follows a blank
/// at its end.
struct RefusedPair {
  std::string option;
  std::string with;
  std::string values;
  std::string why;
};
const std::vector<RefusedPair>& refused_pairs();

/// Throws the same Error on every rank unless the fields are equal on all of them. The message
/// names only the fields that differ, with the values and their ranks. `what`: the owner of the
/// options, such as "the Trainer". Collective.
void require_same_fields(const std::string& what, const OptionFields& fields,
                         const Agreement& agreement);
/// require_same_fields() for a Trainer's arguments, including parameters' groups. Collective.
void require_same_options(const TrainerOptions& options, const OptimizerSpec& optimizer,
                          const std::vector<ModelTensor>& parameters, const Agreement& agreement);

}  // namespace lockstep::detail
