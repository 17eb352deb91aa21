#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <lockstep/amp/impl/memory_extent.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/model_memory.h>

#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace lockstep::detail {

namespace {

/// A pointer to element `offset` of `flat` that keeps the memory allocated.
at::DataPtr shared_memory(const at::Tensor& flat, int64_t offset) {
  auto owner = std::make_unique<c10::Storage>(flat.storage());
  auto* const first = static_cast<char*>(flat.mutable_data_ptr()) +
                      offset * static_cast<int64_t>(flat.element_size());
  return {first, owner.release(), [](void* storage) { delete static_cast<c10::Storage*>(storage); },
          flat.device()};
}

/// True for a parameter or buffer that was made as a view, such as torch::randn({4}).view({2, 2}):
/// it keeps its base alive and shares the version of the base.
bool is_registered_view(const at::Tensor& tensor) {
  return tensor.is_view() && !tensor.grad_fn() && !tensor.is_inference() &&
         torch::autograd::impl::hooks(tensor).empty() &&
         !torch::autograd::impl::try_get_grad_accumulator(tensor);
}

/// Makes autograd forget the base of the view `tensor`; the memory stays.
void forget_origin(const at::Tensor& tensor) {
  const bool requires_grad = tensor.requires_grad();
  const at::Tensor gradient = tensor.grad();
  tensor.unsafeGetTensorImpl()->set_autograd_meta(nullptr);
  tensor.requires_grad_(requires_grad);
  if (gradient.defined()) {
    tensor.mutable_grad() = gradient;
  }
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

bool fills_its_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.storage().nbytes() == tensor.nbytes();
}

void lay_into(const at::Tensor& flat, int64_t offset, const at::Tensor& tensor) {
  const caffe2::TypeMeta dtype = tensor.is_complex() ? tensor.dtype() : flat.dtype();
  if (tensor.numel() > 0 && fills_its_storage(tensor) && tensor.dtype() == dtype &&
      tensor.device() == flat.device()) {
    tensor.storage().set_data_ptr_noswap(shared_memory(flat, offset));
    return;
  }
  const auto bytes = tensor.numel() * static_cast<int64_t>(dtype.itemsize());
  c10::Storage own(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, shared_memory(flat, offset),
      /*allocator=*/nullptr, /*resizable=*/false));
  const at::Tensor laid =
      at::detail::make_tensor<c10::TensorImpl>(std::move(own), flat.detach().key_set(), dtype);
  laid.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  const c10::AutoGradMode no_grad(false);
  tensor.set_data(laid);
}

void share_memory(const at::Tensor& tensor, const c10::Storage& storage) {
  storage.set_data_ptr_noswap(shared_memory(tensor, 0));
}

void give_own_memory(const at::Tensor& tensor) {
  lay_into(flat_alias(tensor, "of the model").clone(), 0, tensor);
}

void forget_origins(const Model& model) {
  std::vector<const ModelTensor*> views;
  for (const auto* tensors : {&model.parameters(), &model.buffers()}) {
    for (const ModelTensor& entry : *tensors) {
      if (is_registered_view(entry.tensor)) {
        forget_origin(entry.tensor);
        views.push_back(&entry);
      }
    }
  }
  const ModelMemory memory(model);
  for (const ModelTensor* entry : views) {
    if (memory.other_user(*entry).empty()) {
      entry->tensor.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
    }
  }
}

ModelMemory::ModelMemory(const Model& model) : model_(model) {
  for (const ModelTensor& entry : model.parameters()) {
    add("parameter " + entry.name, entry.tensor, /*is_buffer=*/false, /*replaced=*/false);
    for (const at::Tensor& replaced : entry.replaced) {
      add("parameter " + entry.name, replaced, /*is_buffer=*/false, /*replaced=*/true);
    }
  }
  for (const ModelTensor& entry : model.buffers()) {
    add("buffer " + entry.name, entry.tensor, /*is_buffer=*/true, /*replaced=*/false);
  }
}

void ModelMemory::add(const std::string& name, const at::Tensor& tensor, bool is_buffer,
                      bool replaced) {
  if (tensor.has_storage()) {
    users_[storage_of(tensor)].push_back({name, tensor, is_buffer, replaced});
  }
}

std::string ModelMemory::other_user(const ModelTensor& entry) const {
  const at::Tensor& tensor = entry.tensor;
  if (!tensor.has_storage() || tensor.numel() == 0) {
    return {};
  }
  const auto& users = users_.at(storage_of(tensor));
  for (const Registered& user : users) {
    if (!user.replaced && !user.tensor.is_same(tensor) &&
        MemoryExtent(user.tensor).overlaps(MemoryExtent(tensor))) {
      return user.name;
    }
  }
  return tensor.storage().use_count() > users.size()
             ? "a tensor that the model has not registered: the result of a forward that ran "
               "before, which is to be dropped or made under NoGradGuard, or a view kept as a "
               "member or in a list"
             : "";
}

void ModelMemory::require_movable(const Precision& precision, c10::Device device) const {
  for (const auto* tensors : {&model_.parameters(), &model_.buffers()}) {
    const bool buffers = tensors == &model_.buffers();
    for (const ModelTensor& entry : *tensors) {
      const at::Tensor& tensor = entry.tensor;
      const c10::ScalarType wanted =
          buffers ? precision.buffer_dtype(entry) : precision.storage_dtype(entry);
      const bool trained = !buffers && tensor.requires_grad();
      const bool stays = tensor.device() == device && tensor.scalar_type() == wanted;
      if (stays && (!trained || fills_its_storage(tensor))) {
        continue;  // it stays, or moves with all its aliases
      }
      const std::string user = other_user(entry);
      if (user.empty()) {
        continue;
      }
      const std::string what =
          c10::str(buffers ? "buffer " : "parameter ", entry.name, " shares its memory with ", user,
                   ", which would keep the old memory for ever: ");
      LOCKSTEP_CHECK(tensor.device() == device, what, "it moves from ", tensor.device(), " to ",
                     device,
                     ". Move the model with to(runtime.device()) before such tensors are "
                     "made, or make them in forward()");
      LOCKSTEP_CHECK(tensor.scalar_type() == wanted, what, "it is stored in ", wanted, " at ",
                     precision.describe(), " and was ", tensor.scalar_type(),
                     ". Call Precision::keep_fp32(\"", entry.name,
                     "\"), make the view in forward(), or clone() what shall not follow");
      throw Error(what +
                  "it is a part of a larger tensor. Register a tensor with memory of its "
                  "own (clone()), or make the view in forward()");
    }
  }
}

}  // namespace lockstep::detail
