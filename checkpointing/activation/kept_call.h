#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/rng_state.h>

#include <any>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::activation {

/// A tensor's data without its graph, as it was when kept.
class KeptTensor {
 public:
  KeptTensor() = default;
  explicit KeptTensor(const at::Tensor& tensor);
  /// The data again; throws lockstep::Error if it has been modified in place since.
  const at::Tensor& data() const;
  bool requires_grad() const noexcept { return requires_grad_; }

 private:
  at::Tensor data_;
  uint32_t version_ = 0;
  bool requires_grad_ = false;
};

/// A tensor that autograd saved, as a view of one of the inputs.
struct InputView {
  std::size_t input;
  at::DimVector sizes;
  at::DimVector strides;
  int64_t offset;  // in elements, from the input's first

  at::Tensor of(const at::Tensor& input_again) const;
};

/// The view of an input that `saved` is, if it shares memory with one.
std::optional<InputView> view_of_input(const std::vector<at::Tensor>& inputs,
                                       const at::Tensor& saved);

/// One call of keep() in a region's forward: what stands in for it in recompute.
struct KeptCall {
  std::any result;                      // its tensors taken out
  std::vector<KeptTensor> tensors;      // those tensors
  std::vector<InputView> saved_inputs;  // what autograd saved of the inputs, in order
  std::optional<RngState> rng_after;
};

}  // namespace lockstep::activation
