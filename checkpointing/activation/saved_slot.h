#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>

namespace lockstep::activation {

/// Which tensor it was, if any, and its version then; keeps the tensor's memory no longer than
/// others do.
class TensorIdentity {
 public:
  explicit TensorIdentity(const at::Tensor& tensor);
  uint32_t version() const noexcept { return version_; }
  /// The present version, or that of then once the tensor is gone.
  uint32_t current_version() const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> impl_;
  uint32_t version_;
};

/// The memory that a tensor or a view of it uses, which it does not keep from being freed.
class StorageIdentity {
 public:
  explicit StorageIdentity(const at::Tensor& tensor);
  bool is_of(const at::Tensor& tensor) const noexcept;
  bool is_freed() const noexcept { return storage_.expired(); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
};

/// What recompute must reproduce of a saved tensor.
class TensorLayout {
 public:
  explicit TensorLayout(const at::Tensor& tensor);
  bool operator==(const TensorLayout& other) const;
  /// For instance "Float[32, 64] on cpu".
  std::string text() const;

 private:
  at::DimVector sizes_;
  at::ScalarType dtype_;
  at::Device device_;
};

/// A tensor that autograd saved inside a region: dropped in forward, back for the time between
/// recompute and its use in backward.
struct SavedSlot {
  explicit SavedSlot(const at::Tensor& tensor)
      : storage(tensor), version(static_cast<uint32_t>(tensor._version())), layout(tensor) {}

  StorageIdentity storage;
  uint32_t version;
  TensorLayout layout;
  bool needed = true;  // some node of the graph still holds it
  at::Tensor recomputed;
  uint32_t recomputed_version = 0;
};

}  // namespace lockstep::activation
