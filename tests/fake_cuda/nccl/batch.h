#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective.h"
#include "live_communicators.h"
#include "transfer.h"

namespace fake_cuda {

/// The calls of one group on one communicator and stream, or a single call: one piece of work.
/// Collectives run one after the other, sends and receives side by side.
class Batch {
 public:
  explicit Batch(Comm comm) : comm_(std::move(comm)) {}

  void add(Collective collective) { collectives_.push_back(std::move(collective)); }
  void add(Transfer transfer) { transfers_.push_back(std::move(transfer)); }

  /// On the stream, or in the graph that it records. `what` names the calls.
  ncclResult_t enqueue_on(cudaStream_t stream, const std::string& what) const;

 private:
  class Run;

  Comm comm_;
  std::vector<Collective> collectives_;
  std::vector<Transfer> transfers_;
};

}  // namespace fake_cuda
