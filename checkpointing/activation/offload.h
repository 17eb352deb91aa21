#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/engine_hook.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace activation {
class OffloadStore;
}

/// What OffloadActivations moves, and how far ahead backward brings it back.
struct OffloadOptions {
  /// Smaller tensors stay on their device.
  TORCH_ARG(int64_t, min_bytes) = 64 * 1024;
  /// How many tensors are on their way back while backward uses the one that it asked for.
  TORCH_ARG(int64_t, prefetch) = 2;
};

/// Moves the tensors that autograd saves to host memory while the object lives, and brings them
/// back in backward. Gradients have the same bits as without.
///
/// From CUDA devices the copies go to pinned memory and back on a stream of their own, beside the
/// computation; backward asks for tensors in reverse order, so the next ones are fetched ahead.
/// Tensors on the host go to a second buffer outside LibTorch's allocator, by the same rules and at
/// once: for tests. These stay where they are: parameters and views of them, integers, tensors
/// below min_bytes, and views with gaps. A tensor that several operators save is moved once.
///
///   OffloadActivations offload(model);          // as a local variable of the forward
///   h = checkpoint(block, h);                   // then the regions' inputs are what is moved
///
/// Open it around checkpointed regions, not inside one: throws lockstep::Error there, since
/// recompute would move the tensors again. Threads: created and destroyed on one, that runs
/// forward; backward may run on another. It may end before backward runs.
class OffloadActivations {
 public:
  explicit OffloadActivations(const std::vector<at::Tensor>& parameters,
                              const OffloadOptions& options = {});
  /// A module, by its holder or pointer.
  template <class Module,
            class = std::void_t<decltype(std::declval<const Module&>()->parameters())>>
  explicit OffloadActivations(const Module& module, const OffloadOptions& options = {})
      : OffloadActivations(module->parameters(), options) {}
  ~OffloadActivations();
  OffloadActivations(const OffloadActivations&) = delete;
  OffloadActivations& operator=(const OffloadActivations&) = delete;

  /// So far, backward included.
  struct Figures {
    int64_t tensors = 0;  // moved out
    int64_t bytes = 0;
    int64_t loads = 0;       // brought back
    int64_t prefetched = 0;  // of these, asked for before backward did
  };
  Figures figures() const;

 private:
  std::shared_ptr<activation::OffloadStore> store_;
  activation::HookScope hooks_;
};

}  // namespace lockstep
