#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

/// Keeps the fp32 values of frozen parameters and buffers that the model stores in 16 bits:
/// snapshots hold these exact values, not the rounded ones. Costs 4 bytes of host memory per
/// element, only for tensors that rounding has changed. If the program writes to such a tensor
/// later, its exact values no longer count (is_outdated).
/// Ranks: local, alike on all ranks. Threads: one.
class ExactValues {
 public:
  /// Gives each frozen parameter, or each buffer, the dtype that `precision` wants.
  void convert_frozen(const std::vector<ModelTensor>& frozen, const Precision& precision);
  void convert_buffers(const std::vector<ModelTensor>& buffers, const Precision& precision);
  /// Adds a parameter that was trained until now; `master`: its exact values, in host memory.
  void add_frozen(const at::Tensor& weight, const at::Tensor& master);
  /// Converts again tensors that got another dtype since, for example from torch::load.
  void convert_again();

  /// The values of a tensor as a snapshot saves them: fp32 where they are kept, else the tensor.
  at::Tensor stored(const at::Tensor& tensor) const;
  /// A tensor to write new values to, for take(). Holds the values of stored() before that.
  at::Tensor room(const at::Tensor& tensor) const;
  /// Takes over the values that were written to room().
  void take(const at::Tensor& tensor, const at::Tensor& written);

  /// True if the program made this 16-bit tensor with more bits, or trained it.
  bool is_lowered(const at::Tensor& tensor) const;
  /// True if fp32 values are kept, but the tensor no longer equals them after rounding.
  bool is_outdated(const at::Tensor& tensor) const;
  /// Counts the calls that may have written tensors.
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
