#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace lockstep::activation {

/// Decides how autograd keeps the tensors that backward will need.
///
/// While a HookScope with this policy is open, LibTorch calls make() for each tensor that an
/// operator saves. LibTorch then calls call_pack_hook() of the result once, in forward, and
/// call_unpack_hook() each time that backward needs the tensor, on the thread that runs backward.
/// make() may also be called for a tensor that LibTorch then keeps by other means: only
/// call_pack_hook() means that the tensor is saved here.
///
/// Some operators save a tensor before they fill it (rrelu its noise). So until the end of the
/// operator the data may still change, without a new version.
class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make() = 0;
  /// Called when no operator runs: all tensors saved so far have their final data.
  virtual void between_operators() {}
};

/// Pushes a policy on this thread's stack of policies; the destructor pops it. A null policy saves
/// tensors as LibTorch does by default. Open it between operators: it calls between_operators() of
/// the enclosing policy.
///
/// Threads: the stack is thread-local. Close scopes in reverse order, on the thread that opened
/// them. Throws lockstep::Error if another library (such as Python's torch module) has replaced
/// LibTorch's autograd engine with its own.
class HookScope {
 public:
  [[nodiscard]] explicit HookScope(SavedTensorPolicy* policy);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

  /// The innermost policy of this thread, or null.
  static SavedTensorPolicy* top() noexcept;
};

}  // namespace lockstep::activation
