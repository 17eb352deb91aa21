#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// Converts every BatchNorm layer of the model (torch::nn, torch::jit or ExportedModule, any number
/// of dimensions) to synchronised batch norm, with statistics over the batches of all ranks.
/// Returns the number of such layers.
///
/// In training, mean and variance are those of the elements of all ranks together, weighted by each
/// rank's count. They are computed in fp32, and in fp64 for fp64 inputs. A rank may have an empty
/// batch. In eval nothing is communicated. Once gradients are averaged over ranks (Trainer,
/// DataParallel), they equal those of one BatchNorm on the joined batch. Running statistics are the
/// same on all ranks.
/// Layers keep their type, weights and names; forward is called as before. A layer is identified by
/// its running_mean, which aten::batch_norm looks up. Therefore layers without running statistics
/// (track_running_stats(false)) are not converted.
///
/// Statistics stay on the device of the model, which must be the device of `communicator`'s tensors
/// (runtime.communicator()). On a GPU the host does not wait for them.
///
/// Ranks: collective, with the same model. Afterwards each training forward and each backward of a
/// converted layer is collective, on a communicator that is split off for these layers. A layer
/// that is recomputed (activation checkpointing) communicates again, in the same order on all
/// ranks. Threads: one at a time. Call before or after a Trainer is made; a
/// Trainer with reproducible(true) refuses such layers only if they are converted before.
/// Differentiable once: a backward with create_graph throws Error. A Trainer refuses such layers
/// with uneven_data, whose ranks without data make no forward, and with an activation_budget in
/// bytes, whose plans may differ between ranks. Errors: Error if the ranks have different numbers
/// of such layers. On the CPU, forward throws Error for fewer than two elements per channel over
/// all ranks; on other devices the running variance becomes NaN. LibTorch itself refuses a training
/// batch of exactly one element per channel on a rank.
int64_t convert_sync_batchnorm(const Model& model, Communicator communicator);

/// The running mean of the first layer of `model` that convert_sync_batchnorm() converted; empty if
/// there is none. Local.
std::string name_of_sync_batchnorm(const Model& model);

}  // namespace lockstep
