#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/impl/rng_state.h>

#include <any>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::activation {

/// The data of a kept tensor, without its graph.
class KeptTensor {
 public:
  KeptTensor() = default;
  explicit KeptTensor(const at::Tensor& tensor);
  /// The data. Throws lockstep::Error if it was modified in place after it was kept.
  const at::Tensor& data() const;
  bool requires_grad() const noexcept { return requires_grad_; }

 private:
  at::Tensor data_;
  uint32_t version_ = 0;
  bool requires_grad_ = false;
};

/// Describes a tensor that autograd saved, as a view of one of the inputs.
struct InputView {
  std::size_t input;
  at::DimVector sizes;
  at::DimVector strides;
  int64_t offset;  // in elements, relative to the input's first

  at::Tensor of(const at::Tensor& input_again) const;
};

/// Describes `saved` as a view of an input; empty if it shares memory with none of the inputs.
std::optional<InputView> view_of_input(const std::vector<at::Tensor>& inputs,
                                       const at::Tensor& saved);

/// One call of keep() in a region's forward, with all that recompute needs to skip it.
struct KeptCall {
  std::any result;                      // with its tensors removed
  std::vector<KeptTensor> tensors;      // the removed tensors
  std::vector<InputView> saved_inputs;  // the inputs that autograd saved, in order
  std::optional<RngState> rng_after;
};

}  // namespace lockstep::activation
