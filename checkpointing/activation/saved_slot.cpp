#include <c10/util/StringUtil.h>
#include <lockstep/checkpointing/activation/impl/saved_slot.h>

namespace lockstep::activation {

TensorIdentity::TensorIdentity(const at::Tensor& tensor)
    : impl_(tensor.getIntrusivePtr()),
      version_(tensor.defined() ? static_cast<uint32_t>(tensor._version()) : 0) {}

// The weak pointer keeps the address from being used again.
bool TensorIdentity::is_of(const at::Tensor& tensor) const noexcept {
  return impl_._unsafe_get_target() == tensor.unsafeGetTensorImpl();
}

uint32_t TensorIdentity::current_version() const {
  const auto impl = impl_.lock();
  return impl ? impl->version_counter().current_version() : version_;
}

StorageIdentity::StorageIdentity(const at::Tensor& tensor)
    : storage_(tensor.has_storage() ? tensor.storage().getWeakStorageImpl()
                                    : c10::weak_intrusive_ptr<c10::StorageImpl>(
                                          c10::intrusive_ptr<c10::StorageImpl>())) {}

// Equal addresses are one storage: the weak pointer keeps the address from being used again.
bool StorageIdentity::is_of(const at::Tensor& tensor) const noexcept {
  return tensor.has_storage() &&
         storage_._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl();
}

TensorLayout::TensorLayout(const at::Tensor& tensor)
    : dtype_(tensor.scalar_type()), device_(tensor.device()) {
  if (!tensor.is_nested()) {
    sizes_ = tensor.sizes();
  }
}

bool TensorLayout::operator==(const TensorLayout& other) const {
  return sizes_ == other.sizes_ && dtype_ == other.dtype_ && device_ == other.device_;
}

std::string TensorLayout::text() const {
  return c10::str(dtype_, at::IntArrayRef(sizes_), " on ", device_);
}

}  // namespace lockstep::activation
