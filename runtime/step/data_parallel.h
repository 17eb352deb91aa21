#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/policies.h>

#include <memory>
#include <optional>

namespace lockstep {

struct DataParallelOptions {
  TORCH_ARG(BucketOptions, buckets) = {};
  /// The dtype in which gradients travel: fp32, fp16 or bf16. Gradients of fp64 parameters always
  /// travel as fp64. Unset: the parameter's dtype.
  TORCH_ARG(std::optional<c10::ScalarType>, wire) = std::nullopt;
  /// ReduceOp::avg (default, with or without predivide) or sum.
  TORCH_ARG(ReduceOp, reduce) = ReduceOp::avg();
  TORCH_ARG(UnusedParameters, unused) = UnusedParameters::error;
  TORCH_ARG(BufferPolicy, buffers) = BufferPolicy::broadcast;
  /// False: a sparse gradient throws an Error that names the parameter. True: a sparse gradient is
  /// converted to a dense one.
  TORCH_ARG(bool, densify_sparse) = false;
};

/// Data parallelism for a training loop that the user writes: averages gradients over the ranks
/// while backward runs.
///
///   lockstep::DataParallel parallel(runtime.communicator(), model);
///   torch::optim::AdamW optimizer(model->parameters(), 3e-4);
///   for (...) {
///     optimizer.zero_grad();
///     loss_of(model, batch).backward();
///     parallel.finish();                 // grad() now holds the average, the same bits everywhere
///     optimizer.step();
///   }
///
/// Construction is collective. It compares the model's structure across ranks, copies rank 0's
/// parameters and buffers to all ranks, and verifies the copies by hash. If the structure differs,
/// throws Error on every rank that names the first difference. The optimizer may be made before or
/// after.
/// Random numbers: if the LibTorch generators of a rank have the same seed as those of a lower
/// rank, construction seeds them again from (that seed, rank), so that dropout differs between
/// ranks. Under Runtime all ranks have the same seed, so that they build the same model. The
/// streams of rank 0, and of ranks that the program seeded differently, do not change.
/// Buckets are laid out once. If wire dtype and parameter dtype are equal, grad() is a view of the
/// bucket. Parameters that are frozen at construction are left out. finish() reports a later change
/// of requires_grad.
/// Errors: throws Error if a backward reaches a parameter again before finish(), since the
/// gradients are not averaged yet. abandon() drops those gradients.
/// Ranks: every rank must run the same number of synchronising backwards and finish() calls.
/// Threads: one. A model can have one wrapper at a time (Error otherwise). The destructor removes
/// all hooks.
class DataParallel {
 public:
  DataParallel(Communicator communicator, Model model, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;

  /// Waits for the reductions that backward started. Afterwards the grad() of every used parameter
  /// holds the average (or sum). Throws Error on every rank if the unused policy is violated, or if
  /// no backward preceded.
  void finish();

  /// While the returned object lives, backward adds to the local gradients and sends nothing. The
  /// first backward after its end sends the accumulated sum. Only the time of backward counts, not
  /// that of forward.
  class [[nodiscard]] NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DataParallel;
    [[nodiscard]] explicit NoSync(DataParallel& owner);
    DataParallel& owner_;
  };
  NoSync no_sync() { return NoSync(*this); }

  /// Drops a backward that threw an exception: waits for reductions in flight and discards them.
  /// Every rank must call it.
  void abandon();

  int buckets() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
