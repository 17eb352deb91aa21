#include <c10/core/GradMode.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/process/impl/host_threads.h>
#include <lockstep/runtime/process/own/construction.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace lockstep::detail {
namespace {

/// In the node's memory each parameter starts at a cache line of its own.
size_t room_of(const at::Tensor& parameter) {
  constexpr size_t kLine = 64;
  return (parameter.nbytes() + kLine - 1) / kLine * kLine;
}

/// Dense memory on the host that no other tensor has.
bool can_move(const at::Tensor& parameter) {
  return parameter.defined() && parameter.is_cpu() && parameter.layout() == at::kStrided &&
         parameter.is_non_overlapping_and_dense() && parameter.numel() > 0 &&
         !parameter.is_quantized() && !parameter.is_conj() && !parameter.is_neg() &&
         parameter.storage().use_count() == 1;
}

int64_t largest(const std::vector<int64_t>& numbers) {
  return *std::max_element(numbers.begin(), numbers.end());
}

}  // namespace

Construction::Construction(const Communicator& ranks, c10::Device device)
    : ranks_(ranks), device_(device) {}

void Construction::run(const std::function<torch::nn::Module&()>& make) {
  const Agreement agreement(ranks_);
  const int64_t turns = largest(ranks_.all_gather_numbers(ranks_.local_size()));
  for (int64_t turn = 0; turn < turns; ++turn) {
    const bool mine = turn == ranks_.local_rank();
    agreement.attempt("construct()", [&] {
      if (!mine) {
        return;
      }
      torch::nn::Module& module = make();
      if (!device_.is_cpu()) {
        module.to(device_);
      }
      parameters_ = movable(module);
      take();
    });
    if (turn == 0 && turns > 1 && device_.is_cpu()) {
      const auto bytes = static_cast<int64_t>(mine ? bytes_of(parameters_) : 0);
      const int64_t most = largest(ranks_.all_gather_numbers(bytes));
      node_ = NodeMemory::make(ranks_, static_cast<size_t>(most), "construct()");
      agreement.attempt("construct()", [&] {
        if (mine) {
          publish();
          take();
        }
      });
    }
  }
}

std::vector<at::Tensor> Construction::movable(const torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second && can_move(parameter)) {
      result.push_back(parameter);
    }
  }
  return result;
}

size_t Construction::bytes_of(const std::vector<at::Tensor>& parameters) {
  size_t bytes = 0;
  for (const at::Tensor& parameter : parameters) {
    bytes += room_of(parameter);
  }
  return bytes;
}

template <typename Form>
void Construction::each(const Form& form) const {
  size_t offset = 0;
  for (const at::Tensor& parameter : parameters_) {
    if (node_ == nullptr || offset + parameter.nbytes() > node_->bytes()) {
      return;
    }
    form(parameter, offset);
    offset += room_of(parameter);
  }
}

void Construction::publish() const {
  each([&](const at::Tensor& parameter, size_t offset) {
    const auto bytes = static_cast<int64_t>(parameter.nbytes());
    std::memcpy(node_->published(offset, bytes, at::kByte).mutable_data_ptr(),
                parameter.const_data_ptr(), parameter.nbytes());
  });
}

void Construction::take() const {
  const c10::AutoGradMode no_grad(false);
  each([&](const at::Tensor& parameter, size_t offset) {
    const at::Tensor flat = node_->own(offset, parameter.numel(), parameter.scalar_type());
    if (std::memcmp(flat.const_data_ptr(), parameter.const_data_ptr(), parameter.nbytes()) == 0) {
      parameter.set_data(flat.as_strided(parameter.sizes(), parameter.strides()));
    }
  });
  release_freed_memory(device_);
}

}  // namespace lockstep::detail
