#include <ATen/Context.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/data/impl/mixed_seed.h>
#include <lockstep/runtime/step/impl/leaves.h>
#include <lockstep/runtime/storage/impl/renormed_tables.h>

#include <cmath>

namespace lockstep::detail {
namespace {

constexpr const char* kWhy = "TrainerOptions.reproducible: ";

void require_fp32_at_most(const Model& model) {
  for (const ModelTensor& entry : model.parameters()) {
    const bool wide = c10::toRealValueType(entry.tensor.scalar_type()) == at::kDouble;
    LOCKSTEP_CHECK(!wide || !entry.tensor.requires_grad(), kWhy, "parameter ", entry.name, " is ",
                   entry.tensor.is_complex() ? "complex128" : "fp64",
                   ", and gradients are summed with 62 bits; convert it to ",
                   entry.tensor.is_complex() ? "complex64" : "fp32");
  }
}

/// Such an update of an element does not depend on where the shard begins.
void require_updates_by_element(const Model& model, const OptimizerSpec& optimizer) {
  bool by_element = optimizer.fused() != nullptr;
  for (const ModelTensor& entry : model.parameters()) {
    by_element = by_element && !optimizer.needs_whole(entry);
  }
  LOCKSTEP_CHECK(by_element, kWhy, "with shard_optimizer the low bits of ", optimizer.describe(),
                 " depend on the number of ranks; use AdamW, Adam, SGD or Lion of lockstep, or "
                 "shard_optimizer(false)");
}

}  // namespace

TrainerOptions with_own_leaves(TrainerOptions options, int ranks) {
  if (!options.reproducible() || options.leaves() == 0) {
    return options;
  }
  const int64_t leaves = options.leaves();
  LOCKSTEP_CHECK(leaves % ranks == 0, kWhy, leaves, " leaves cannot be shared equally by ", ranks,
                 " ranks; use a number of ranks that divides the leaves");
  LOCKSTEP_CHECK(options.accumulate() == 1 || options.accumulate() == leaves / ranks, kWhy,
                 "accumulate is ", options.accumulate(), ", but each of ", ranks, " ranks has ",
                 leaves / ranks, " of ", leaves, " leaves; leave accumulate out");
  return options.accumulate(leaves / ranks);
}

TrainerOptions with_all_leaves(TrainerOptions options, int ranks) {
  if (!options.reproducible()) {
    return options;
  }
  const int64_t leaves = options.leaves() > 0 ? options.leaves() : options.accumulate() * ranks;
  return options.leaves(leaves).accumulate(1);
}

void require_reproducible(const TrainerOptions& options, const Runtime& runtime, const Model& model,
                          const OptimizerSpec& optimizer) {
  if (!options.reproducible()) {
    return;
  }
  LOCKSTEP_CHECK(runtime.device().is_cpu(), kWhy,
                 "sums are exact in host memory only, this rank "
                 "computes on ",
                 runtime.device(), "; use RuntimeOptions().device(DeviceKind::cpu)");
  LOCKSTEP_CHECK(runtime.threads_are_named(), kWhy, "the number of compute threads, ",
                 runtime.threads(),
                 ", follows from the number of ranks, and LibTorch's sums depend on it; set "
                 "OMP_NUM_THREADS or RuntimeOptions().threads(n), the same in every run");
  require_fp32_at_most(model);
  require_no_renormed_tables(kWhy, model);
  if (options.shard_optimizer()) {
    require_updates_by_element(model, optimizer);
  }
  const std::string layer = name_of_sync_batchnorm(model);
  LOCKSTEP_CHECK(layer.empty(), kWhy, "the buffer ", layer,
                 " belongs to a layer of convert_sync_batchnorm(), whose statistics are those of "
                 "all ranks; use plain BatchNorm, whose statistics are those of a leaf");
}

Leaves::Leaves(const TrainerOptions& options, uint64_t seed, const Communicator& communicator,
               std::vector<ModelTensor> buffers)
    : on_(options.reproducible()),
      seed_(seed),
      own_(options.accumulate()),
      rank_(communicator.rank()),
      ranks_(communicator.size()),
      buffers_(std::move(buffers), communicator, own_) {}

/// Skipped windows count too: their random numbers are used up.
void Leaves::seed(const amp::Decision& known, int64_t micro_batch, Site site) const {
  uint64_t stream = mixed_seed(seed_, static_cast<uint64_t>(known.updates));
  for (const int64_t part :
       {known.scaler.iteration, rank_ * own_ + micro_batch, static_cast<int64_t>(site)}) {
    stream = mixed_seed(stream, static_cast<uint64_t>(part));
  }
  at::manual_seed(stream);
}

void Leaves::begin(const amp::Decision& known, int64_t micro_batch) {
  if (!on_) {
    return;
  }
  seed(known, micro_batch, Site::closure);
  if (micro_batch == 0) {
    buffers_.begin();
  }
}

void Leaves::end(const amp::Decision& known, int64_t micro_batch) {
  if (!on_) {
    return;
  }
  buffers_.end_leaf();
  if (micro_batch + 1 < own_) {
    seed(known, micro_batch + 1, Site::loop);
  }
}

void Leaves::require_exact(const Loss& loss) const {
  if (!on_ || !loss.is_sum()) {
    return;
  }
  const double steps = std::ldexp(loss.weight(), 20);
  LOCKSTEP_CHECK(steps == std::floor(steps) &&
                     loss.weight() * static_cast<double>(count()) <= std::ldexp(1.0, 32),
                 kWhy, "the weight of this Loss::sum, ", loss.weight(),
                 ", cannot be added exactly; round it to a multiple of 2^-20 below 2^32 / leaves");
}

void Leaves::merge_buffers() {
  buffers_.merge();
}

void Leaves::end_window(const amp::Decision& known) {
  if (!on_) {
    return;
  }
  buffers_.abandon();
  seed(known, 0, Site::loop);
}

}  // namespace lockstep::detail
