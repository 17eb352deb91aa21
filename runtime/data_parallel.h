#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/bucket_plan.h>

#include <memory>
#include <optional>

namespace lockstep {

/// What to do with a parameter that got no gradient in a synchronising backward.
enum class UnusedParameters {
  error,  // Error on every rank that names them and the rank, before anything is updated
  zeros,  // counts as a zero gradient
  // Unused on all ranks: its gradient stays undefined, so it is not updated, and its optimizer's
  // count of updates stays, too; used on some: zeros on the others.
  detect,
};

/// How buffers (BatchNorm statistics...) are kept alike, once per finish(); integer buffers are
/// never averaged but take rank 0's value.
enum class BufferPolicy { none, broadcast, average };

struct DataParallelOptions {
  TORCH_ARG(BucketOptions, buckets) = {};
  /// The dtype in which gradients travel; fp32, fp16 or bf16. fp64 parameters always travel as
  /// fp64. Unset: the parameter's own dtype.
  TORCH_ARG(std::optional<c10::ScalarType>, wire) = std::nullopt;
  /// avg (default, with or without predivide) or sum.
  TORCH_ARG(ReduceOp, reduce) = ReduceOp::avg();
  TORCH_ARG(UnusedParameters, unused) = UnusedParameters::error;
  TORCH_ARG(BufferPolicy, buffers) = BufferPolicy::broadcast;
  /// False: a sparse gradient is refused by name. True: it is turned into a dense one.
  TORCH_ARG(bool, densify_sparse) = false;
};

/// Data parallelism for a loop of one's own: averages gradients while backward runs.
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
/// Construction (every rank): compares the model's structure across ranks (Error on every rank
/// that names the first difference), then copies rank 0's parameters and buffers to all ranks and
/// verifies them by hash. Build the optimizer before or after, as you like.
/// Random numbers: a process whose LibTorch generators have the seed of a lower rank's (as under
/// Runtime, which seeds all ranks alike so that models are built alike) has them seeded anew from
/// (that seed, rank), so that dropout differs between ranks. Rank 0's stream, and those of ranks
/// that the program seeded differently, go on as they are.
/// Buckets are laid out once. Where wire and parameter dtype are equal, grad() is a view of the
/// bucket. Parameters that are frozen at construction stay out; changing requires_grad later is
/// reported by finish().
/// A backward that reaches a parameter again before finish() throws Error: gradients were not
/// averaged yet. abandon() then drops them.
/// Ranks: every rank must run the same number of synchronising backwards and finish() calls.
/// Threads: one. One wrapper a model at a time (Error otherwise); the destructor removes all hooks.
class DataParallel {
 public:
  DataParallel(Communicator communicator, Model model, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;

  /// Waits for the reductions that backward started; afterwards every used parameter's grad() is
  /// the average (or sum). Throws Error on every rank when the unused policy is violated, or when
  /// no backward preceded.
  void finish();

  /// While the returned object lives, backward adds to the local gradients and sends nothing; the
  /// first backward after it sends the accumulated sum. Covers backwards, not forwards.
  class NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DataParallel;
    explicit NoSync(DataParallel& owner);
    DataParallel& owner_;
  };
  NoSync no_sync() { return NoSync(*this); }

  /// Drops a backward that threw half way: waits for what was sent, forgets it. Every rank.
  void abandon();

  int buckets() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
