#pragma once

#include <lockstep/runtime/trainer.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>

namespace lockstep {

/// The sizes that find_batch_size() tries. Ranks: the same on every rank.
struct BatchSizeSearch {
  /// The first size. Every size that is tried is a multiple of it. Requires: >= 1.
  TORCH_ARG(int64_t, smallest) = 1;
  /// The largest size that is tried. Requires: >= smallest, <= 2^40.
  TORCH_ARG(int64_t, most) = 8192;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
};

/// Finds the largest batch size for which no rank runs out of memory: doubles the size until a
/// trial fails with exit code out_of_memory or `most` is reached, then bisects.
///
///   const int64_t size = lockstep::find_batch_size(trainer, [&](int64_t size) {
///     for (int64_t i = 0; i < 3; ++i) {
///       trainer.step([&] { return loss_of(trainer.to_device(batch_of(size))); });
///     }
///   });
///
/// `try_size(size)` makes some updates with batches of this size on each rank, or as many of them
/// as show the memory that training needs; 3 is usual. Make what may be too large in the closure of
/// step(): an error there is raised on every rank. A rank that fails alone outside of a step leaves
/// its peers waiting.
///
/// After each trial the Trainer is as before, bit for bit, as after find_learning_rate(). Loaders
/// are left where try_size() leaves them: use loaders that end with the trial.
/// Call it between windows. Ranks: every rank makes the same call; all of them get the same size.
/// Threads: one. Throws the same Error on every rank: if the smallest size fails, for another
/// failure than memory, for an option out of range, and with TrainerOptions::digest_log,
/// local_updates, cuda_graph or an activation_budget in bytes.
/// On the CPU the system may end a process that takes too much memory before an allocation fails:
/// limit the memory of the process (ulimit -v), or choose `most`.
[[nodiscard]] int64_t find_batch_size(Trainer& trainer,
                                      const std::function<void(int64_t)>& try_size,
                                      const BatchSizeSearch& search = {});

}  // namespace lockstep
