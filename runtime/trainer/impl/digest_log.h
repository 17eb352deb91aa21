#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/scaler_state.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/step/impl/reducer.h>
#include <lockstep/runtime/trainer/impl/log_file.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The file of TrainerOptions::digest_log, which `lockstep diff` reads. A line for each window,
/// made or skipped:
///   {"update":7,"made":6,"micro_batches":[["LOSS","RANDOM"],...],"parameters":[["NAME","WEIGHT",
///    "GRADIENT"],...]}
/// with hexadecimal numbers: the bits of the loss, and digests of the state of the random numbers
/// after the forward, of a weight after the update and of its reduced gradient. Micro-batches are
/// in the order of ranks, then of time. "parameters" only where weights and gradients were hashed.
/// Ranks: write() is collective, all else local. Threads: one.
class DigestLog {
 public:
  /// Rank 0 opens the file. Throws Error with path and reason.
  DigestLog(const std::string& path, int64_t every, Communicator control);

  /// Call it before the first micro-batch of a window.
  void begin_window() { micro_batches_.clear(); }
  /// Call it after the forward of a micro-batch.
  void note_random();
  /// Call it after the backward of a micro-batch.
  void note_loss(double loss);
  /// Writes the line of a window. Call it after the update, made or skipped.
  void write(const amp::ScalerState& scaler, const Reducer& reducer);

 private:
  struct MicroBatch {
    uint64_t loss;
    uint64_t random;
  };
  std::vector<MicroBatch> of_all_ranks() const;

  int64_t every_;
  Communicator control_;
  std::optional<LogFile> file_;  // of rank 0
  bool begun_ = false;
  uint64_t random_ = 0;
  std::vector<MicroBatch> micro_batches_;  // of this rank, in the window
};

}  // namespace lockstep::detail
