#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/step/impl/leaf_buffers.h>
#include <lockstep/runtime/storage/impl/versions.h>

#include <cstring>

namespace lockstep::detail {
namespace {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == 0 ||  // then there may be no memory
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// Writes without a change of the version that autograd sees.
void put(const ModelTensor& buffer, const at::Tensor& value) {
  buffer.tensor.data().copy_(value);
}

}  // namespace

/// Buffers that are merged in one array: floating-point ones in fp64, all others as bytes.
struct LeafBuffers::Group {
  at::ScalarType dtype;
  std::vector<size_t> buffers;
};

void LeafBuffers::begin() {
  const c10::AutoGradMode no_grad(false);
  before_.clear();
  made_.clear();
  for (const ModelTensor& buffer : buffers_) {
    before_.push_back(buffer.tensor.detach().contiguous().clone());
  }
}

void LeafBuffers::end_leaf() {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor>& made = made_.emplace_back(buffers_.size());
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const at::Tensor now = applied(buffers_[i].tensor.detach()).contiguous();
    LOCKSTEP_CHECK(
        now.sizes() == before_[i].sizes() && now.scalar_type() == before_[i].scalar_type(),
        "buffer ", buffers_[i].name,
        " has changed its sizes or its dtype in a step; with "
        "reproducible(true) leaves are merged, so keep both");
    if (!same_bits(now, before_[i])) {
      made[i] = now.clone();
      put(buffers_[i], before_[i]);
    }
  }
}

void LeafBuffers::abandon() {
  const c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < before_.size(); ++i) {
    if (buffers_[i].tensor.sizes() == before_[i].sizes()) {
      put(buffers_[i], before_[i]);
    }
  }
  before_.clear();
  made_.clear();
}

/// The buffers that a leaf changed: large constant buffers, such as masks, never travel.
std::vector<char> LeafBuffers::changed_anywhere() const {
  const at::Tensor flags = at::zeros({static_cast<int64_t>(buffers_.size())}, at::kLong);
  for (const std::vector<at::Tensor>& made : made_) {
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i].defined()) {
        flags[static_cast<int64_t>(i)] = 1;
      }
    }
  }
  communicator_.all_reduce(flags).wait();
  std::vector<char> changed;
  for (int64_t i = 0; i < flags.numel(); ++i) {
    changed.push_back(flags.const_data_ptr<int64_t>()[i] > 0 ? 1 : 0);
  }
  return changed;
}

void LeafBuffers::merge() {
  if (buffers_.empty() || before_.empty()) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  Group reals{at::kDouble, {}};
  Group others{at::kByte, {}};  // taken from leaf 0
  const std::vector<char> changed = changed_anywhere();
  for (size_t i = 0; i < changed.size(); ++i) {
    if (changed[i] != 0) {
      (buffers_[i].tensor.is_floating_point() ? reals : others).buffers.push_back(i);
    }
  }
  merge(reals);
  merge(others);
  note_writes(buffers_);
  before_.clear();
  made_.clear();
}

/// The leaves are added in their order, so the ranks do not matter.
void LeafBuffers::merge(Group& group) const {
  if (group.buffers.empty()) {
    return;
  }
  std::vector<at::Tensor> rows;
  for (const std::vector<at::Tensor>& made : made_) {
    std::vector<at::Tensor> parts;
    for (const size_t i : group.buffers) {
      const at::Tensor& value = made[i].defined() ? made[i] : before_[i];
      const at::Tensor flat = value.reshape({-1}).contiguous();
      parts.push_back(group.dtype == at::kByte ? flat.view(at::kByte) : flat.to(group.dtype));
    }
    rows.push_back(at::cat(parts));
  }
  const at::Tensor mine = at::stack(rows).contiguous();
  const at::Tensor all = at::empty({communicator_.size() * leaves_, mine.size(1)}, mine.options());
  communicator_.all_gather(all.view({-1}), mine.view({-1})).wait();
  at::Tensor result = all[0].clone();
  if (group.dtype == at::kDouble) {
    for (int64_t leaf = 1; leaf < all.size(0); ++leaf) {
      result.add_(all[leaf]);
    }
    result.div_(static_cast<double>(all.size(0)));
  }
  int64_t offset = 0;
  for (const size_t i : group.buffers) {
    const bool as_bytes = group.dtype == at::kByte;
    const auto count = static_cast<int64_t>(as_bytes ? before_[i].nbytes() : before_[i].numel());
    const at::Tensor part = result.narrow(0, offset, count).clone();
    put(buffers_[i],
        (as_bytes ? part.view(before_[i].scalar_type()) : part).view(before_[i].sizes()));
    offset += count;
  }
}

}  // namespace lockstep::detail
