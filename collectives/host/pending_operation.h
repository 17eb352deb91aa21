#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/host/collective_step.h>
#include <lockstep/collectives/host/node_group.h>
#include <lockstep/collectives/impl/collective_call.h>
#include <lockstep/collectives/work.h>

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

namespace lockstep::detail {

/// A collective issued to a NodeEngine, with its progress. Keeps the tensors alive. Threads: as the
/// engine.
class PendingOperation : public Operation {
 public:
  PendingOperation(const CollectiveCall& call, std::unique_ptr<CollectiveStep> step,
                   std::array<at::Tensor, 2> tensors);

  void complete();
  /// Keeps the number of chunks, and does none of the work. wait() then throws `why`.
  void abandon(const std::exception_ptr& why);

  const CollectiveCall call;
  const std::string label;
  std::unique_ptr<CollectiveStep> step;
  uint64_t first_tick = 0;
  uint64_t first_staged = 0;
  uint64_t after = 0;  // sequence number of the last earlier call on the same memory; 0: none
  int64_t posted = 0;  // chunks
  int64_t reduced = 0;
  int64_t finished = 0;
  bool agreed = false;
  bool done = false;
  std::exception_ptr abandoned;  // why; null: the call is not abandoned

  uint64_t tick(int64_t chunk) const { return first_tick + static_cast<uint64_t>(chunk); }
  uint64_t staged_index(int64_t chunk) const { return first_staged + static_cast<uint64_t>(chunk); }
  int slot(int64_t chunk) const {
    return static_cast<int>(staged_index(chunk) % NodeGroup::kSlots);
  }

 private:
  std::array<at::Tensor, 2> tensors_;
};

/// The step of a call that is abandoned.
std::unique_ptr<CollectiveStep> make_abandoned(int64_t chunks, bool staged);

}  // namespace lockstep::detail
