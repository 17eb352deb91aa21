#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/collectives/check.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

namespace activation {

/// Consecutive modules of a torch::nn::Sequential, as one function from tensor to tensor.
template <class AnyModule>
class Slice {
 public:
  explicit Slice(std::vector<AnyModule> modules) : modules_(std::move(modules)) {}

  at::Tensor operator()(at::Tensor x) {
    for (AnyModule& module : modules_) {
      x = module.template forward<at::Tensor>(std::move(x));
    }
    return x;
  }

  std::vector<at::Tensor> buffers() const {
    std::vector<at::Tensor> all;
    for (const AnyModule& module : modules_) {
      for (at::Tensor& tensor : module.ptr()->buffers()) {
        all.push_back(std::move(tensor));
      }
    }
    return all;
  }

 private:
  std::vector<AnyModule> modules_;
};

template <class Iterator>
auto slice(Iterator begin, Iterator end) {
  using AnyModule = typename std::iterator_traits<Iterator>::value_type;
  return Slice<AnyModule>(std::vector<AnyModule>(begin, end));
}

}  // namespace activation

/// Runs a torch::nn::Sequential in `segments` pieces and checkpoints all but the last piece, which
/// backward would need at once. A piece has size() / segments modules; the last piece also takes
/// the remainder.
///
/// input: the tensor that the first module takes. Throws lockstep::Error unless 1 <= segments <=
/// the number of modules. For everything else see checkpoint().
template <class Sequential>
[[nodiscard]] at::Tensor checkpoint_sequential(Sequential& sequential, int64_t segments,
                                               at::Tensor input,
                                               const CheckpointOptions& options = {}) {
  const auto modules = static_cast<int64_t>(sequential->size());
  LOCKSTEP_CHECK(segments >= 1 && segments <= modules, "checkpoint_sequential: segments is ",
                 segments, ", it must be from 1 to the ", modules, " modules");
  const int64_t length = modules / segments;
  auto module = sequential->begin();
  for (int64_t segment = 0; segment + 1 < segments; ++segment, module += length) {
    input = checkpoint(options, activation::slice(module, module + length), std::move(input));
  }
  return activation::slice(module, sequential->end())(std::move(input));
}

}  // namespace lockstep
