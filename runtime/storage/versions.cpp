#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <lockstep/runtime/storage/impl/versions.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <unordered_set>

namespace lockstep::detail {

namespace {

/// The sequence number at this thread's last note_writes(); its later nodes have no smaller one.
thread_local uint64_t next_node = 0;

}  // namespace

void note_writes(const std::vector<ModelTensor>& tensors) {
  for (const ModelTensor& entry : tensors) {
    if (!entry.tensor.is_inference()) {
      entry.tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
  next_node = at::sequence_number::peek();
}

bool is_partly_older_than_writes(const at::Tensor& loss) {
  const uint64_t this_thread = at::RecordFunction::currentThreadId();
  using torch::autograd::Node;
  std::vector<Node*> open;
  std::unordered_set<Node*> seen;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      open.push_back(node);
    }
  };
  visit(loss.grad_fn().get());
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (node->thread_id() == this_thread && node->sequence_nr() < next_node) {
      return true;
    }
    for (const auto& edge : node->next_edges()) {
      visit(edge.function.get());
    }
  }
  return false;
}

}  // namespace lockstep::detail
