#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

/// The fp32 values of tensors that no update moves (frozen parameters, buffers) and that the model
/// keeps in 16 bits: snapshots hold these bits, not the rounded ones. In host memory, 4 bytes an
/// element, for tensors that lost something; others are not kept.
/// What the program writes to such a tensor later counts: its exact values are then forgotten.
/// Ranks: local, alike on all ranks. Threads: one.
class ExactValues {
 public:
  /// Gives each frozen parameter, or each buffer, the dtype that `precision` wants.
  void convert_frozen(const std::vector<ModelTensor>& frozen, const Precision& precision);
  void convert_buffers(const std::vector<ModelTensor>& buffers, const Precision& precision);
  /// Adds a parameter that was trained until now; `master`: its exact values, in host memory.
  void add_frozen(const at::Tensor& weight, const at::Tensor& master);
  /// The same again for tensors that got another dtype since, by torch::load say.
  void convert_again();

  /// The values of a tensor as a snapshot saves them: fp32 where they are kept, else the tensor.
  at::Tensor stored(const at::Tensor& tensor) const;
  /// Where the values of a tensor may be written for take(): stored() before that.
  at::Tensor room(const at::Tensor& tensor) const;
  /// Takes over what was written to room().
  void take(const at::Tensor& tensor, const at::Tensor& written);

  /// True if the program gave this tensor more than its 16 bits, or trained it.
  bool is_lowered(const at::Tensor& tensor) const;
  /// True if the fp32 values are kept and the tensor no longer is what they are rounded to.
  bool is_outdated(const at::Tensor& tensor) const;
  /// Grows with each call that may have written tensors.
  int64_t writes() const { return writes_; }

 private:
  struct Converted {
    at::Tensor tensor;
    c10::ScalarType dtype;
  };
  void convert(const at::Tensor& tensor, c10::ScalarType dtype);
  void lower(const at::Tensor& tensor, c10::ScalarType dtype);
  void keep(const at::Tensor& tensor, const at::Tensor& exact);

  std::vector<Converted> converted_;
  std::unordered_set<const void*> lowered_;  // by TensorImpl
  int64_t writes_ = 0;
  std::unordered_map<const void*, at::Tensor> exact_;  // by TensorImpl
};

}  // namespace lockstep::detail
