#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace lockstep::activation {

/// A copy of a tensor's data in host memory, made by the constructor; load() copies it back to the
/// device. For accelerators both copies run on a separate stream and the memory is pinned; the host
/// never waits. Threads: one at a time.
class HostCopy {
 public:
  /// tensor: dense, without overlaps.
  explicit HostCopy(const at::Tensor& tensor);

  bool is_like(const at::Tensor& tensor) const;
  /// Starts the copy back to the device, unless it was started already.
  void load();
  bool is_loading() const noexcept { return loaded_.defined(); }
  /// The data on the device, for later work on the current stream. Call after load().
  at::Tensor wait();
  /// Drops the loaded data; the host copy stays.
  void unload() noexcept { loaded_.reset(); }

 private:
  c10::Device device_;
  bool is_neg_;
  at::Tensor host_;
  at::Tensor loaded_;
  std::optional<c10::Event> arrival_;
};

}  // namespace lockstep::activation
