#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace lockstep::activation {

/// The state of the default random generators: that of the host, and that of each CUDA device in
/// use (a device without a CUDA context is left alone). Threads: any. The generators belong to the
/// process, so ranks that are threads of one process share them.
class RngState {
 public:
  static RngState current();
  void restore() const;
  /// Whether the generators draw the same numbers next.
  bool operator==(const RngState& other) const;

 private:
  struct Host;
  std::shared_ptr<const Host> host_;
  std::vector<std::pair<int, at::Tensor>> devices_;
};

/// Sets the generators to `state`; the destructor restores their previous state.
class RngGuard {
 public:
  [[nodiscard]] explicit RngGuard(const RngState& state) : outer_(RngState::current()) {
    state.restore();
  }
  ~RngGuard();
  RngGuard(const RngGuard&) = delete;
  RngGuard& operator=(const RngGuard&) = delete;

 private:
  RngState outer_;
};

}  // namespace lockstep::activation
