// The only file that depends on how LibTorch's autograd engine is built. LibTorch offers C++ no
// default hooks for saved tensors, but each SavedVariable asks the default engine for them, and the
// default engine can be replaced by a subclass.
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/collectives/check.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/version.h>

#include <mutex>
#include <vector>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9,
              "the engine hook is written for LibTorch 2.9 and later 2.x: check here that "
              "SavedVariable still asks Engine::get_default_saved_variable_hooks()");

namespace lockstep::activation {

namespace {

using torch::autograd::Engine;

thread_local std::vector<SavedTensorPolicy*> policies;

class HookedEngine final : public Engine {
 public:
  static HookedEngine& only() {
    static HookedEngine engine;
    return engine;
  }
  static Engine& instance() { return only(); }
  ~HookedEngine() override { stop(); }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    SavedTensorPolicy* policy = HookScope::top();
    return policy != nullptr ? policy->make() : nullptr;
  }

  // LibTorch starts its threads once in a process, for the engine that first runs a backward.
  void have_threads() {
    initialize_device_threads_pool();
    if (thread_pool_shared_ == nullptr) {
      start_device_threads();
    }
  }
};

// The two engines share no state but the thread-local queues of the host, so the swap may happen
// after backward has run. It must not replace an engine that is neither.
void install() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (&Engine::get_default_engine() == &HookedEngine::instance()) {
    return;
  }
  LOCKSTEP_CHECK(&Engine::get_default_engine() == &Engine::get_base_engine(),
                 "activation checkpointing needs LibTorch's own autograd engine, but another "
                 "library (Python's torch module?) has installed its engine in this process: run "
                 "the training in a process of its own");
  HookedEngine::only().have_threads();
  torch::autograd::set_default_engine_stub(&HookedEngine::instance);
}

}  // namespace

HookScope::HookScope(SavedTensorPolicy* policy) {
  if (&Engine::get_default_engine() != &HookedEngine::instance()) {
    install();
  }
  if (SavedTensorPolicy* outer = top()) {
    outer->between_operators();
  }
  policies.push_back(policy);
}

HookScope::~HookScope() {
  policies.pop_back();
}

SavedTensorPolicy* HookScope::top() noexcept {
  return policies.empty() ? nullptr : policies.back();
}

}  // namespace lockstep::activation
