#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>

namespace lockstep::activation {

/// Identifies a tensor and its version at construction, without keeping its memory alive. The
/// tensor may be undefined.
class TensorIdentity {
 public:
  explicit TensorIdentity(const at::Tensor& tensor);
  uint32_t version() const noexcept { return version_; }
  bool is_of(const at::Tensor& tensor) const noexcept;
  /// The version now; if the tensor no longer exists, the version at construction.
  uint32_t current_version() const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> impl_;
  uint32_t version_;
};

/// Identifies the storage of a tensor and of its views, without keeping that storage alive.
class StorageIdentity {
 public:
  explicit StorageIdentity(const at::Tensor& tensor);
  bool is_of(const at::Tensor& tensor) const noexcept;
  bool is_freed() const noexcept { return storage_.expired(); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
};

/// The properties of a saved tensor that recompute must reproduce: sizes, dtype and device.
class TensorLayout {
 public:
  explicit TensorLayout(const at::Tensor& tensor);
  bool operator==(const TensorLayout& other) const;
  /// Text for messages, for instance "Float[32, 64] on cpu".
  std::string text() const;

 private:
  at::DimVector sizes_;
  at::ScalarType dtype_;
  at::Device device_;
};

/// Describes a tensor that an operator of this thread has saved and may fill later.
class LateFill {
 public:
  /// False for a tensor that requires a gradient: it was computed before, or each write gives it a
  /// new version.
  static bool is_possible(const at::Tensor& tensor) { return !tensor.requires_grad(); }
  /// The tensor without its graph; itself if it may be filled later, since that may resize it.
  static at::Tensor detached(const at::Tensor& tensor) {
    return is_possible(tensor) ? tensor : tensor.detach();
  }
  /// Whether the operator has ended. Before the save it took a sequence number for its node; an
  /// in-place operator takes a second one for a clone of its input.
  bool is_over() const { return at::sequence_number::peek() >= number_ + 2; }

 private:
  uint64_t number_ = at::sequence_number::peek();
};

/// A tensor that autograd saved inside a region. Forward drops it; it exists again between
/// recompute and its use in backward.
struct SavedSlot {
  explicit SavedSlot(const at::Tensor& tensor)
      : storage(tensor), version(static_cast<uint32_t>(tensor._version())), layout(tensor) {}

  StorageIdentity storage;
  uint32_t version;
  TensorLayout layout;
  bool needed = true;  // a node of the graph still holds this slot
  at::Tensor recomputed;
  uint32_t recomputed_version = 0;
};

}  // namespace lockstep::activation
