#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>

#include <cstdint>

namespace lockstep {

/// Makes every BatchNorm of the model (torch::nn or torch::jit, any number of dimensions) take its
/// statistics over the batches of all ranks; returns how many there are.
///
/// In training mean and variance are those of all ranks' elements together, weighted by their
/// counts, in fp32 or better whatever the input's dtype; a rank may have an empty batch. In eval
/// nothing is communicated. Gradients are those of one BatchNorm on the joined batch once they are
/// averaged over ranks (Trainer, DataParallel). Running statistics come out the same on all ranks.
/// The model keeps its layers: no type changes, weights and names stay, forward is called as ever.
/// How: layers are known by their running_mean; the operator aten::batch_norm asks for it. So
/// layers without running statistics (track_running_stats(false)) are not converted.
///
/// Statistics stay where the model is, which is the device of `communicator`'s tensors
/// (runtime.communicator()); there the host waits for none of them.
///
/// Ranks: collective, with the same model; afterwards each training forward and each backward of
/// such a layer is collective, on a communicator of its own. One that is recomputed (activation
/// checkpointing) communicates again, in the same order on all ranks. Threads: one at a time.
/// Call before or after a Trainer is made. Differentiable once.
/// Errors: Error if the ranks have different numbers of such layers; at forward, for inputs with
/// fewer than two elements a channel over all ranks (on the CPU; elsewhere the running variance
/// becomes NaN). LibTorch itself refuses a rank's training
/// batch of exactly one element a channel.
int64_t convert_sync_batchnorm(const Model& model, Communicator communicator);

}  // namespace lockstep
