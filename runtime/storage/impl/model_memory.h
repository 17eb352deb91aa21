#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::detail {

/// True if the StorageImpl of this tensor holds the tensor and nothing else. Its data pointer can
/// then be moved, and every view of the tensor follows.
bool fills_its_storage(const at::Tensor& tensor);

/// Makes `tensor` the elements of `flat` from `offset` on, in the memory order it has; a complex
/// one the pairs of real numbers there. Where it
/// fills its storage and keeps its dtype and device, the StorageImpl stays and its data pointer
/// moves: every alias follows. Else the tensor gets another StorageImpl, and an alias keeps the old
/// memory: ask ModelMemory before. `flat` lives as long as any alias.
void lay_into(const at::Tensor& flat, int64_t offset, const at::Tensor& tensor);

/// Makes the aliases in `storage` see the memory of `tensor`, which has the same layout.
void share_memory(const at::Tensor& tensor, const c10::Storage& storage);

/// Gives `tensor` memory of its own with the values it has. Aliases follow as with lay_into().
void give_own_memory(const at::Tensor& tensor);

/// Parameters and buffers that were made as views (view(), chunk(), conj(), ...) become tensors of
/// their own to autograd, in the memory that they have: what they were made from is no longer kept
/// alive, and pieces of one tensor no longer share a version, unless something else uses the
/// memory.
void forget_origins(const Model& model);

/// Who uses the memory of a model's tensors. A tensor that is not registered (a view kept as a
/// member, a list of views for a penalty) shares the StorageImpl, so the count of its users tells
/// of it.
class ModelMemory {
 public:
  explicit ModelMemory(const Model& model);

  /// Throws Error naming the first tensor of the model that will get memory which an alias of it
  /// cannot follow: in another dtype (of `precision`), on another device, or as a part of a larger
  /// tensor. Local; before anything moves.
  void require_movable(const Precision& precision, c10::Device device) const;

  /// Who else uses the memory of this tensor: a registered name, or what an unregistered alias may
  /// be. Empty if nobody does.
  std::string other_user(const ModelTensor& entry) const;

 private:
  struct Registered {
    std::string name;
    at::Tensor tensor;
    bool is_buffer;
    bool replaced;  // by a tie; follows the tensor that replaced it
  };
  void add(const std::string& name, const at::Tensor& tensor, bool is_buffer, bool replaced);

  Model model_;
  std::unordered_map<const void*, std::vector<Registered>> users_;  // by StorageImpl
};

}  // namespace lockstep::detail
