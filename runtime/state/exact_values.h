#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>

#include <unordered_map>
#include <vector>

namespace lockstep::detail {

/// The fp32 values of tensors that no update moves (frozen parameters, buffers) and that the model
/// keeps in 16 bits: snapshots hold these bits, not the rounded ones. In host memory, 4 bytes an
/// element, for tensors that lost something; others are not kept.
/// What the program writes to such a tensor later counts: its exact values are then forgotten.
/// Ranks: local, alike on all ranks. Threads: one.
class ExactValues {
 public:
  /// Gives each tensor the dtype that `precision` wants; integers stay.
  void convert(const std::vector<ModelTensor>& tensors, const Precision& precision);
  /// The same again for tensors that got another dtype since, by torch::load say.
  void convert_again();

  /// The values of a tensor as a snapshot saves them: fp32 where they are kept, else the tensor.
  at::Tensor stored(const at::Tensor& tensor) const;
  /// Where the values of a tensor may be written for take(): stored() before that.
  at::Tensor room(const at::Tensor& tensor) const;
  /// Takes over what was written to room().
  void take(const at::Tensor& tensor, const at::Tensor& written);

 private:
  struct Converted {
    at::Tensor tensor;
    c10::ScalarType dtype;
  };
  void lower(const at::Tensor& tensor, c10::ScalarType dtype);
  void keep(const at::Tensor& tensor, const at::Tensor& exact);

  std::vector<Converted> converted_;
  std::unordered_map<const void*, at::Tensor> exact_;  // by TensorImpl
};

}  // namespace lockstep::detail
