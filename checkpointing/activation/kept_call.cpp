#include <ATen/ops/as_strided.h>
#include <lockstep/checkpointing/activation/impl/kept_call.h>
#include <lockstep/checkpointing/activation/impl/saved_slot.h>
#include <lockstep/collectives/check.h>

namespace lockstep::activation {

KeptTensor::KeptTensor(const at::Tensor& tensor) {
  if (tensor.defined()) {
    data_ = LateFill::detached(tensor);
    version_ = static_cast<uint32_t>(tensor._version());
    requires_grad_ = tensor.requires_grad();
  }
}

const at::Tensor& KeptTensor::data() const {
  LOCKSTEP_CHECK(!data_.defined() || data_._version() == version_, "keep(): a kept tensor (",
                 data_.dtype(), data_.sizes(), " on ", data_.device(),
                 ") has been modified in place since (version ", version_, ", now ",
                 data_._version(), "): use the operator that is not in place");
  return data_;
}

at::Tensor InputView::of(const at::Tensor& input_again) const {
  return input_again.detach().as_strided(sizes, strides, input_again.storage_offset() + offset);
}

std::optional<InputView> view_of_input(const std::vector<at::Tensor>& inputs,
                                       const at::Tensor& saved) {
  for (std::size_t i = 0; saved.has_storage() && i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (input.defined() && input.has_storage() && input.is_alias_of(saved) &&
        input.dtype() == saved.dtype() && input.is_neg() == saved.is_neg() &&
        input.is_conj() == saved.is_conj()) {
      return InputView{i, at::DimVector(saved.sizes()), at::DimVector(saved.strides()),
                       saved.storage_offset() - input.storage_offset()};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::activation
