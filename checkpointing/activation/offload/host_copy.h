#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace lockstep::activation {

/// A tensor's data in host memory: copied there at construction, back to its device by load(). For
/// accelerators both copies run on a stream of their own and the memory is pinned; the host never
/// waits. Threads: one at a time.
class HostCopy {
 public:
  /// tensor: dense, without overlaps.
  explicit HostCopy(const at::Tensor& tensor);

  bool is_like(const at::Tensor& tensor) const;
  /// Starts to bring the data back, unless that is under way or done.
  void load();
  bool is_loading() const noexcept { return loaded_.defined(); }
  /// The data, for work on the current stream from now on. After load().
  at::Tensor wait();
  /// Forgets the loaded data; the host's stays.
  void unload() noexcept { loaded_.reset(); }

 private:
  c10::Device device_;
  bool is_neg_;
  at::Tensor host_;
  at::Tensor loaded_;
  std::optional<c10::Event> arrival_;
};

}  // namespace lockstep::activation
