#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace lockstep::activation {

/// Decides how autograd keeps the tensors that backward will need.
///
/// While a HookScope of it is open, LibTorch asks make() for each tensor that an operator saves and
/// then calls call_pack_hook() of the result once, in forward, and call_unpack_hook() whenever
/// backward needs the tensor, on whichever thread backward runs. make() may be called for a tensor
/// that is then kept by other means: only call_pack_hook() says that a tensor is saved here.
class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make() = 0;
};

/// Puts a policy on top of this thread's stack for the life of the object; null saves tensors as
/// LibTorch does by itself.
///
/// Threads: the stack is thread-local; scopes are closed in reverse order on the thread that opened
/// them. Throws lockstep::Error where another library (such as Python's torch module) has put its
/// own autograd engine in place of LibTorch's.
class HookScope {
 public:
  explicit HookScope(SavedTensorPolicy* policy);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

  /// The policy in force on this thread, or null.
  static SavedTensorPolicy* top() noexcept;
};

}  // namespace lockstep::activation
