#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/state/flat.h>
#include <lockstep/runtime/state/model_memory.h>

#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <set>
#include <utility>

namespace lockstep::detail {

namespace {

/// The memory of `flat` from `offset` elements on, which stays allocated while this exists.
at::DataPtr shared_memory(const at::Tensor& flat, int64_t offset) {
  auto owner = std::make_unique<c10::Storage>(flat.storage());
  auto* const first = static_cast<char*>(flat.mutable_data_ptr()) +
                      offset * static_cast<int64_t>(flat.element_size());
  return {first, owner.release(), [](void* storage) { delete static_cast<c10::Storage*>(storage); },
          flat.device()};
}

/// First and last byte in the storage, the last one excluded.
std::pair<int64_t, int64_t> extent_of(const at::Tensor& tensor) {
  int64_t elements = tensor.numel() > 0 ? 1 : 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    elements += elements > 0 ? (tensor.size(d) - 1) * tensor.stride(d) : 0;
  }
  const auto item = static_cast<int64_t>(tensor.element_size());
  return {tensor.storage_offset() * item, (tensor.storage_offset() + elements) * item};
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto [a_begin, a_end] = extent_of(a);
  const auto [b_begin, b_end] = extent_of(b);
  return a_begin < b_end && b_begin < a_end;
}

/// The tensor of which `tensor` is a view, if nothing but views know it any more: a parameter made
/// by register_parameter("w", torch::randn({4}).view({2, 2})) keeps it alive.
const void* base_known_to_views_alone(const std::vector<at::Tensor>& views,
                                      const at::Tensor& tensor) {
  if (!tensor.is_view()) {
    return nullptr;
  }
  const at::TensorBase& base = tensor._base();
  size_t holders = 0;
  for (const at::Tensor& view : views) {
    if (view.is_view() && view._base().is_same(base)) {
      const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
      holders += meta->has_bw_view() ? 1 : 0;
      holders += meta->has_fw_view() && !meta->shared_view_info() ? 1 : 0;
    }
  }
  return base.use_count() <= holders ? base.unsafeGetTensorImpl() : nullptr;
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
    if (!user.replaced && !user.tensor.is_same(tensor) && overlap(user.tensor, tensor)) {
      return user.name;
    }
  }
  std::vector<at::Tensor> registered;
  for (const Registered& user : users) {
    registered.push_back(user.tensor);
  }
  std::set<const void*> known;
  for (const at::Tensor& each : registered) {
    known.insert(each.unsafeGetTensorImpl());
    if (const void* base = base_known_to_views_alone(registered, each)) {
      known.insert(base);
    }
  }
  return tensor.storage().use_count() > known.size()
             ? "a tensor that the model has not registered (a view kept as a member or in a list, "
               "the data of detach(), or the graph of a loss that is still there)"
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
        continue;  // or moves with all its aliases
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
