#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/checkpointing/activation/impl/saved_slot.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/offload/host_copy.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lockstep::activation {

/// The tensors of one OffloadActivations, in the order in which forward saved them.
///
/// Lifetime: the nodes of autograd share the store; a host copy is freed with the last node that
/// saved the tensor. Threads: forward on one, backward on any (a lock).
class OffloadStore final : public SavedTensorPolicy,
                           public std::enable_shared_from_this<OffloadStore> {
 public:
  OffloadStore(const std::vector<at::Tensor>& parameters, OffloadOptions options);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override;
  /// Copies the tensors that waited for the end of the operator that saved them.
  void between_operators() override;
  OffloadActivations::Figures figures() const;

 private:
  class Holder;
  struct Slot {
    Slot(const at::Tensor& tensor, std::size_t index)
        : source(tensor),
          version(static_cast<uint32_t>(tensor._version())),
          index(index),
          waiting(tensor) {}
    bool holds(const at::Tensor& tensor) const;
    StorageIdentity source;
    uint32_t version;
    std::size_t index;
    at::Tensor waiting;  // the tensor, until there is a copy
    std::optional<HostCopy> copy;
    int64_t holders = 0;
    int64_t taken = 0;
  };

  bool moves(const at::Tensor& tensor) const;
  /// A slot with the tensor's data; an earlier slot if it has the same data. Null: the tensor would
  /// be more than max_bytes.
  std::shared_ptr<Slot> add(const at::Tensor& tensor);
  void move(Slot& slot);
  void move_waiting(bool all);
  at::Tensor take(Slot& slot);
  void forget_dead_slots();

  const OffloadOptions options_;
  std::unordered_set<const c10::StorageImpl*> weights_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Slot>> slots_;
  std::unordered_map<const void*, std::weak_ptr<Slot>> by_address_;
  std::vector<std::pair<LateFill, std::weak_ptr<Slot>>> waiting_;
  int64_t added_bytes_ = 0;
  OffloadActivations::Figures figures_;
};

}  // namespace lockstep::activation
