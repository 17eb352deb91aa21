#pragma once

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// A form in which LibTorch keeps a part of a tensor's values beside its memory.
struct LazyForm {
  std::string name;
  /// `values` in this form: real ones, or complex ones where the form is of complex tensors only.
  std::function<at::Tensor(const at::Tensor& values)> of;
  bool is_complex = false;
};

inline std::vector<LazyForm> lazy_forms() {
  return {
      {"minus", [](const at::Tensor& values) { return values.neg()._neg_view(); }},
      {"conjugated",
       [](const at::Tensor& values) { return at::conj(at::conj(values).resolve_conj()); },
       /*is_complex=*/true},
      {"conjugated minus",
       [](const at::Tensor& values) {
         return at::conj(at::conj(values).neg().resolve_conj())._neg_view();
       },
       /*is_complex=*/true},
  };
}

/// A tensor of ones whose memory does not hold its values one by one.
struct OddTensor {
  std::string word;  // of its refusal
  at::Tensor tensor;
};

/// `ones`: with one dimension or two.
inline std::vector<OddTensor> odd_tensors(const at::Tensor& ones = at::ones({4, 4})) {
  std::vector<OddTensor> all = {
      {"Sparse", ones.to_sparse()},
      {"Mkldnn", ones.to_mkldnn()},
      {"quantised", at::quantize_per_tensor(ones, 0.1, 0, at::kQInt8)},
      {"nested", at::_nested_tensor_from_tensor_list({ones, ones.narrow(0, 0, 2)})},
      {"meta", at::empty(ones.sizes(), at::TensorOptions().device(at::kMeta))},
  };
  if (ones.dim() == 2) {
    all.push_back({"SparseCsr", ones.to_sparse_csr()});
  }
  return all;
}

}  // namespace lockstep::testing
