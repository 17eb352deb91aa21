#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace lockstep::activation {

/// The state of the default random generators: the host's, and that of each CUDA device that is in
/// use (a device that nothing has touched yet is left alone). Threads: any; the generators are
/// shared by the process, so ranks that live as threads share the stream.
class RngState {
 public:
  static RngState current();
  void restore() const;

 private:
  struct Host;
  std::shared_ptr<const Host> host_;
  std::vector<std::pair<int, at::Tensor>> devices_;
};

/// Takes the generators to `state` and, at the end, back to where they were.
class RngGuard {
 public:
  explicit RngGuard(const RngState& state) : outer_(RngState::current()) { state.restore(); }
  ~RngGuard();
  RngGuard(const RngGuard&) = delete;
  RngGuard& operator=(const RngGuard&) = delete;

 private:
  RngState outer_;
};

}  // namespace lockstep::activation
