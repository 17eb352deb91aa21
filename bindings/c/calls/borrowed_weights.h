#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/data_parallel.h>

#include <memory>
#include <vector>

namespace lockstep::c {

/// DataParallel over weights that are arrays of the program, which computes their gradients itself.
/// Ranks, errors: as DataParallel.
class BorrowedWeights {
 public:
  /// Copies the weights of rank 0 into those of the other ranks.
  BorrowedWeights(const Communicator& communicator, const std::vector<at::Tensor>& weights,
                  const DataParallelOptions& options);

  /// Throws Error (exit code data) unless there is a gradient of the right shape and dtype for each
  /// weight. Local.
  void require_fit(const std::vector<at::Tensor>& gradients) const;
  /// The averages over the ranks (or sums), valid until the next call.
  std::vector<at::Tensor> average(const std::vector<at::Tensor>& gradients);

 private:
  std::vector<at::Tensor> weights_;
  std::unique_ptr<DataParallel> parallel_;
};

}  // namespace lockstep::c
