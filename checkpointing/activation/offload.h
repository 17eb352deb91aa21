#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace activation {
class OffloadStore;
}

/// Which tensors OffloadActivations moves, and how far ahead backward fetches them.
struct OffloadOptions {
  /// Smaller tensors stay on their device. Requires: not negative.
  TORCH_ARG(int64_t, min_bytes) = 64 * 1024;
  /// How many further tensors are fetched while backward uses the one that it asked for. Requires:
  /// not negative.
  TORCH_ARG(int64_t, prefetch) = 2;
  /// Tensors beyond this many bytes, of all that one object moves, stay on their device. Requires:
  /// not negative.
  TORCH_ARG(int64_t, max_bytes) = std::numeric_limits<int64_t>::max();
};

/// Moves the tensors that autograd saves in the lifetime of the object to host memory. Backward
/// brings them back. Gradients have the same bits as without offload.
///
/// From CUDA devices the tensors are copied to pinned memory and back on a separate stream, in
/// parallel with the computation. Backward asks for tensors in reverse order, so the next ones are
/// prefetched. Tensors on the host are copied synchronously, by the same rules, to a second buffer
/// outside LibTorch's allocator: this is for tests. Not moved: parameters and views of them,
/// integers, tensors smaller than min_bytes, and views with gaps. A tensor that several operators
/// save is moved once.
///
///   OffloadActivations offload(model);          // a local variable of the forward
///   h = checkpoint(block, h);                   // the inputs of the regions are moved
///
/// Open it around checkpointed regions. Inside a region the constructor throws lockstep::Error,
/// since recompute would move the tensors again. Threads: create and destroy it on the thread that
/// runs forward; backward may run on another one. It may be destroyed before backward runs.
class OffloadActivations {
 public:
  [[nodiscard]] explicit OffloadActivations(const std::vector<at::Tensor>& parameters,
                                            const OffloadOptions& options = {});
  /// module: its holder or a pointer.
  template <class Module,
            class = std::void_t<decltype(std::declval<const Module&>()->parameters())>>
  [[nodiscard]] explicit OffloadActivations(const Module& module,
                                            const OffloadOptions& options = {})
      : OffloadActivations(module->parameters(), options) {}
  ~OffloadActivations();
  OffloadActivations(const OffloadActivations&) = delete;
  OffloadActivations& operator=(const OffloadActivations&) = delete;

  /// Totals since construction, including those of backward.
  struct Figures {
    int64_t tensors = 0;     // moved to the host
    int64_t bytes = 0;       // moved to the host
    int64_t loads = 0;       // tensors brought back
    int64_t prefetched = 0;  // of these, fetched before backward asked
  };
  Figures figures() const;

 private:
  std::shared_ptr<activation::OffloadStore> store_;
  activation::HookScope hooks_;
};

}  // namespace lockstep
