// Every operator on tensors of the pretend device: LibTorch's own for the host, on the same bytes.
#include "operators.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "random.h"
#include "recording.h"

namespace lockstep::pretend {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::CUDA;
using torch::jit::Stack;

/// The bytes between a tensor's first element and its last.
size_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return 0;
  }
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return static_cast<size_t>(last + 1) * tensor.element_size();
}

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(kType),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

/// A recording would read it again each time, whatever it holds by then.
void refuse_host_memory(const std::string& op) {
  TORCH_CHECK(!is_recording(), op, " reads memory of the host in a recording");
}

/// A tensor of the device that takes over what an operator of the host has made.
at::Tensor to_device(const at::Tensor& made) {
  const at::Tensor whole = made.is_non_overlapping_and_dense() ? made : made.contiguous();
  at::Tensor result = empty_on_device(whole.sizes(), whole.strides(), whole.scalar_type());
  on_host(result).copy_(whole);
  touch(result, Access::write);
  return result;
}

/// A view of `base`, of which the operator has made a view of the same bytes.
at::Tensor view_of(const at::Tensor& base, const at::Tensor& view) {
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), view.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(),
                                                      view.storage_offset());
  return result;
}

/// An operator's arguments while it runs on the host.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack) : op_(op), stack_(stack) {
    const auto& arguments = op.schema().arguments();
    const size_t first = stack.size() - arguments.size();
    for (size_t k = 0; k < arguments.size(); ++k) {
      stack[first + k] = for_host(stack[first + k], arguments[k]);
    }
    check_devices();
  }

  void run() {
    const size_t count = op_.schema().arguments().size();
    const Stack again = is_recording() ? Stack(stack_.end() - count, stack_.end()) : Stack();
    call(stack_);
    const auto& returns = op_.schema().returns();
    const size_t first = stack_.size() - returns.size();
    std::vector<std::pair<size_t, at::Tensor>> made;
    for (size_t k = 0; k < returns.size(); ++k) {
      const c10::IValue found = stack_[first + k];
      stack_[first + k] = for_device(found);
      if (found.isTensor() && is_new(found.toTensor())) {
        made.emplace_back(k, on_host(stack_[first + k].toTensor()));
      }
    }
    note_again(again, std::move(made));
  }

 private:
  struct Alias {
    at::Tensor device;
    at::Tensor host;
  };

  void call(Stack& stack) const { call(op_, has_generator_, stack); }
  static void call(const c10::OperatorHandle& op, bool has_generator, Stack& stack) {
    const auto redispatch = [&] {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    };
    if (op.hasTag(at::Tag::nondeterministic_seeded) && !has_generator) {
      with_generator(redispatch);
    } else {
      redispatch();
    }
  }

  /// For a recording: the same operator on the same bytes, its results to where they were.
  void note_again(const Stack& arguments, std::vector<std::pair<size_t, at::Tensor>> made) const {
    if (!is_recording()) {
      return;
    }
    note([op = op_, has_generator = has_generator_, arguments, made = std::move(made)] {
      const Inside inside;
      Stack stack = arguments;
      call(op, has_generator, stack);
      for (const auto& [k, result] : made) {
        const size_t first = stack.size() - op.schema().returns().size();
        at::Tensor(result).copy_(stack[first + k].toTensor());
      }
    });
  }

  c10::IValue for_host(const c10::IValue& value, const c10::Argument& argument) {
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (value.isTensor()) {
      return tensor_for_host(value.toTensor(), writes);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(tensor_for_host(tensor, writes));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional(tensor_for_host(*tensor, writes))
                                          : std::nullopt);
      }
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kType) {
      return c10::Device(c10::kCPU);
    }
    if (argument.type()->str().find("Generator") != std::string::npos) {
      has_generator_ = true;
      return host_generator(value.isNone() ? std::nullopt : std::optional(value.toGenerator()));
    }
    return value;
  }

  at::Tensor tensor_for_host(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!tensor.is_cuda()) {
      on_host_ = on_host_ || tensor.dim() > 0;
      if (tensor.dim() > 0) {
        refuse_host_memory(op_.schema().name());
      }
      return is_recording() ? tensor.clone() : tensor;  // a number goes with the launch
    }
    on_device_ = true;
    if (!makes_view()) {
      touch(tensor, writes ? Access::write : Access::read);
    }
    aliases_.push_back({tensor, on_host(tensor)});
    return aliases_.back().host;
  }

  /// Operators that only say which bytes a tensor has.
  bool makes_view() const {
    const auto& returns = op_.schema().returns();
    return !returns.empty() && returns[0].alias_info() != nullptr &&
           !returns[0].alias_info()->isWrite();
  }

  /// As LibTorch has it: scalars of the host mix with everything, and so do indices.
  void check_devices() const {
    const std::string& name = op_.schema().name();
    TORCH_CHECK(!on_device_ || !on_host_ || name.find("aten::index") == 0 ||
                    name.find("aten::_index_put") == 0,
                name, ": expected all tensors to be on the same device, but some are on the host");
  }

  c10::IValue for_device(const c10::IValue& value) {
    if (value.isTensor()) {
      return tensor_for_device(value.toTensor());
    }
    if (value.isTensorList()) {
      TORCH_CHECK(!is_recording(), op_.schema().name(), " cannot be recorded");
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(tensor_for_device(tensor));
      }
      return list;
    }
    wait_for(current_stream());  // the host knows it
    return value;
  }

  at::Tensor tensor_for_device(const at::Tensor& found) const {
    if (!found.defined()) {
      return found;
    }
    if (is_new(found)) {
      return to_device(found);
    }
    for (const Alias& alias : aliases_) {
      if (alias.host.is_same(found)) {
        return take_over(alias);
      }
      if (alias.host.storage().is_alias_of(found.storage())) {
        return view_of(alias.device, found);
      }
    }
    return found;
  }
  bool is_new(const at::Tensor& found) const {
    return found.defined() &&
           std::none_of(aliases_.begin(), aliases_.end(), [&](const Alias& alias) {
             return alias.host.storage().is_alias_of(found.storage());
           });
  }

  /// An output that the operator has made larger lies elsewhere on the host.
  static at::Tensor take_over(const Alias& alias) {
    if (alias.host.sizes() != alias.device.sizes() ||
        host_address(alias.device.const_data_ptr()) != alias.host.const_data_ptr()) {
      TORCH_CHECK(!is_recording(), "an output was resized in a recording");
      alias.device.resize_(alias.host.sizes());
      on_host(alias.device).copy_(alias.host);
    }
    return alias.device;
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  std::vector<Alias> aliases_;
  bool on_device_ = false;
  bool on_host_ = false;
  bool has_generator_ = false;
};

void on_the_host(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  const Inside inside;
  static const std::set<std::string> kSizedByValues = {"aten::nonzero", "aten::masked_select",
                                                       "aten::_unique2"};
  const bool waits = kSizedByValues.count(op.schema().name()) != 0;
  Call(op, *stack).run();
  if (waits) {
    wait_for(current_stream());
  }
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                 std::optional<bool> /*pin_memory*/, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, c10::GetAllocator(kType),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> /*device*/, std::optional<bool> /*pin_memory*/) {
  return empty_on_device(sizes, strides, c10::dtype_or_default(dtype));
}

/// What the device writes to page-locked memory arrives when the host waits for it.
void copy_to_host_later(const at::Tensor& to, const at::Tensor& values) {
  const bool dense = to.is_non_overlapping_and_dense();
  if (dense) {
    std::memset(to.mutable_data_ptr(), 0xff, to.nbytes());
  }
  write_later(to.mutable_data_ptr(), extent(to), next_moment(current_stream()),
              [to = to, values = values.clone()] {
                const Inside inside;
                at::Tensor(to).copy_(values);
              });
}

void copy_on_host(at::Tensor to, const at::Tensor& from, bool later) {
  for (const at::Tensor& tensor : {to, from}) {
    if (tensor.is_cpu()) {
      write_now(tensor.const_data_ptr(), extent(tensor), current_stream());
    }
  }
  if (to.is_cpu() && later) {
    copy_to_host_later(to, on_host(from));
  } else {
    on_host(to).copy_(on_host(from));
  }
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) {
    return to;
  }
  const Inside inside;
  if (!from.is_cuda()) {
    refuse_host_memory("aten::copy_");
  }
  touch(from, Access::read);
  touch(to, Access::write);
  const at::Tensor& of_host = from.is_cuda() ? to : from;
  const bool later = of_host.is_cuda() || (non_blocking && is_pinned(of_host.const_data_ptr()));
  perform([to = to, from = from, later] {
    const Inside inside;
    copy_on_host(to, from, later);
  });
  if (!later) {
    wait_for(current_stream());
  }
  return to;
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const size_t bytes =
      static_cast<size_t>(self.storage_offset()) * self.element_size() + extent(self);
  c10::StorageImpl* const storage = self.storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) {
    c10::DataPtr grown = c10::GetAllocator(kType)->allocate(bytes);
    if (storage->nbytes() > 0) {
      touch(storage->data(), storage->nbytes(), Access::read, current_stream());
      TORCH_CHECK(!is_recording(), "a tensor was resized in a recording");
      std::memcpy(host_address(grown.get()), host_address(storage->data()), storage->nbytes());
    }
    storage->set_data_ptr_noswap(std::move(grown));
    storage->set_nbytes(bytes);
  }
  if (format.has_value() && *format != at::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  const auto contiguous = c10::contiguous_strides(sizes);
  impl->set_sizes_and_strides(sizes, strides.size() == sizes.size() ? strides : contiguous, offset);
  return self;
}

void record_stream(at::Tensor& self, at::Stream stream) {
  keep_for(self.storage().data(), stream.id());
}

}  // namespace

at::Tensor on_host(const at::Tensor& of_device) {
  if (!of_device.defined() || !of_device.is_cuda()) {
    return of_device;
  }
  const c10::Storage& storage = of_device.storage();
  c10::DataPtr bytes(host_address(storage.data()), c10::Device(c10::kCPU));
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(bytes),
                   c10::GetAllocator(c10::kCPU), /*resizable=*/true),
      c10::DispatchKeySet(c10::DispatchKey::CPU), of_device.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(of_device.sizes(), of_device.strides(),
                                                     of_device.storage_offset());
  return alias;
}

void touch(const at::Tensor& tensor, Access access) {
  touch(tensor.const_data_ptr(), extent(tensor), access, current_stream());
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy_);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("record_stream", &record_stream);
}

}  // namespace lockstep::pretend
