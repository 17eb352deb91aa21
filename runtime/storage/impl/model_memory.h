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

/// Makes `tensor` an alias of `flat` from element `offset` on, in the tensor's memory order; a
/// complex tensor takes pairs of real elements. Copies nothing. If the tensor fills its storage and
/// keeps its dtype and device, the StorageImpl stays and its data pointer moves: every alias
/// follows. Else the tensor gets another StorageImpl and aliases keep the old memory: ask
/// ModelMemory before. The memory of `flat` lives as long as any alias.
void lay_into(const at::Tensor& flat, int64_t offset, const at::Tensor& tensor);

/// Makes the tensors on `storage` aliases of `tensor`, which has the same layout.
void share_memory(const at::Tensor& tensor, const c10::Storage& storage);

/// Moves `tensor` with its values to memory of its own. Aliases follow as with lay_into().
void give_own_memory(const at::Tensor& tensor);

/// Makes parameters and buffers that were created as views (view(), chunk(), conj(), ...)
/// independent tensors to autograd, in the same memory. Their bases are no longer kept alive.
/// Pieces of one base no longer share a version, unless something else uses the memory.
void forget_origins(const Model& model);

/// Finds out who else uses the memory of a model's tensors. An unregistered alias (a view kept as a
/// member, a list of views for a penalty) shows in the use count of the StorageImpl.
class ModelMemory {
 public:
  explicit ModelMemory(const Model& model);

  /// Throws Error naming the first tensor that has an alias which cannot follow its move: to
  /// another dtype (of `precision`), to another device, or out of a larger tensor. Local. Call it
  /// before anything moves.
  void require_movable(const Precision& precision, c10::Device device) const;

  /// Who else uses the memory of this tensor: a registered name, or what an unregistered alias may
  /// be. Empty if nobody does.
  std::string other_user(const ModelTensor& entry) const;

 private:
  struct Registered {
    std::string name;
    at::Tensor tensor;
    bool is_buffer;
    bool replaced;  // by a tie; it follows the tensor that replaced it
  };
  void add(const std::string& name, const at::Tensor& tensor, bool is_buffer, bool replaced);

  Model model_;
  std::unordered_map<const void*, std::vector<Registered>> users_;  // by StorageImpl
};

}  // namespace lockstep::detail
