// In place of engine_hook.cpp for versions of LibTorch whose engine it does not know.
#include <lockstep/checkpointing/activation/engine_hook.h>
#include <lockstep/collectives/error.h>
#include <torch/version.h>

namespace lockstep::activation {

bool engine_hook_available() noexcept {
  return false;
}

HookScope::HookScope(SavedTensorPolicy* /*policy*/) {
  throw Error("saved-tensor hooks (OffloadActivations) are not built for LibTorch " TORCH_VERSION
              ": use a version from 2.9 on, below 3");
}

HookScope::~HookScope() = default;

SavedTensorPolicy* HookScope::top() noexcept {
  return nullptr;
}

}  // namespace lockstep::activation
