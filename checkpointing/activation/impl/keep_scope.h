#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/checkpointing/activation/impl/kept_call.h>

#include <any>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::activation {

/// One call of keep(), inside the region whose policy is on top of this thread's stack.
///
/// Forward: notes the call in a KeptCall. Inputs that autograd saves become slots of the region;
/// other tensors that autograd saves are kept. Recompute: fills those slots and returns the kept
/// tensors.
class KeepScope : public SavedTensorPolicy {
 public:
  static bool wanted();

  explicit KeepScope(std::vector<at::Tensor> inputs);
  KeepScope(const KeepScope&) = delete;
  KeepScope& operator=(const KeepScope&) = delete;

  /// In recompute, the KeptCall that forward made of this call; otherwise null.
  const KeptCall* recorded() const noexcept { return recorded_; }
  at::Tensor take(const KeptTensor& kept) const;

  void keep(const at::Tensor& output);
  void finish(std::any result);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override;

 private:
  class Holder;
  void make_again(SavedTensorPolicy& filler);

  std::vector<at::Tensor> inputs_;
  SavedTensorPolicy* region_;
  const KeptCall* recorded_ = nullptr;
  KeptCall recording_;
  std::optional<HookScope> hooks_;
};

}  // namespace lockstep::activation
