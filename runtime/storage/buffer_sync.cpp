#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/storage/impl/buffer_sync.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/versions.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

/// Applies lazy conjugations and minus signs of data that the program gave to buffers since.
void apply_lazy_signs(const std::vector<ModelTensor>& buffers) {
  for (const ModelTensor& entry : buffers) {
    if (is_lazy(entry.tensor) || entry.tensor.is_meta()) {
      entry.tensor.set_data(plain(entry.tensor.detach(), "buffer " + entry.name));
    }
  }
}

}  // namespace

void BufferSync::run(const std::vector<ModelTensor>& buffers) {
  apply_lazy_signs(buffers);
  if (policy_ == BufferPolicy::none || communicator_.size() == 1) {
    return;
  }
  if (!laid_out_for(buffers)) {
    lay_out(buffers);
  }
  std::vector<Work> works;
  for (Group& group : groups_) {
    at::cat_out(group.array, group.buffers);
    works.push_back(group.averaged ? communicator_.all_reduce(group.array, ReduceOp::avg())
                                   : communicator_.broadcast(group.array));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    works[g].wait();
    at::_foreach_copy_(groups_[g].buffers, groups_[g].parts);
  }
  note_writes(buffers);
}

bool BufferSync::laid_out_for(const std::vector<ModelTensor>& buffers) const {
  return std::equal(buffers.begin(), buffers.end(), laid_out_.begin(), laid_out_.end(),
                    [](const ModelTensor& entry, const at::Tensor& alias) {
                      return entry.tensor.const_data_ptr() == alias.const_data_ptr() &&
                             entry.tensor.numel() == alias.numel() &&
                             entry.tensor.scalar_type() == alias.scalar_type();
                    });
}

/// The layout follows from dtypes and sizes alone, so it is the same on every rank.
void BufferSync::lay_out(const std::vector<ModelTensor>& buffers) {
  laid_out_.clear();
  groups_.clear();
  for (const ModelTensor& entry : buffers) {
    // data(): LibTorch copies in place only where autograd does not look. run() notes the write.
    const at::Tensor flat = flat_alias(entry.tensor, entry.name).data();
    laid_out_.push_back(flat);
    const bool averaged = policy_ == BufferPolicy::average && flat.is_floating_point() &&
                          flat.element_size() > 1;  // no wire adds fp8
    if (flat.numel() > 0) {
      group_for(flat.scalar_type(), averaged)
          .buffers.push_back(averaged ? flat : flat.view(at::kByte));
    }
  }
  for (Group& group : groups_) {
    group.array = at::cat(group.buffers);
    int64_t offset = 0;
    for (const at::Tensor& buffer : group.buffers) {
      group.parts.push_back(group.array.narrow(0, offset, buffer.numel()));
      offset += buffer.numel();
    }
  }
}

BufferSync::Group& BufferSync::group_for(at::ScalarType dtype, bool averaged) {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    return group.averaged == averaged &&
           (!averaged || group.buffers.front().scalar_type() == dtype);
  });
  if (found != groups_.end()) {
    return *found;
  }
  groups_.emplace_back().averaged = averaged;
  return groups_.back();
}

}  // namespace lockstep::detail
