#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/data/impl/state_archive.h>

#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace lockstep::detail {

/// A master as the optimizer of this rank sees it.
struct OwnedMaster {
  at::Tensor elements;  // all of it, or this rank's shard, of as many dimensions: {1, 1, n}
  at::Tensor whole;     // has the sizes and strides of all of it
  int64_t begin = 0;    // of the shard, in the memory order of `whole`
  bool is_sharded = false;
};

/// Visits what `optimizer` keeps for a parameter, under the names of torch.optim in Python. Loading
/// creates state that the snapshot has. It drops other state, which an optimizer makes in its first
/// step; that of Adagrad is reset to what its constructor made. Throws Error for an optimizer that
/// is not Adam, AdamW, SGD, Adagrad, RMSprop or Muon.
void visit_torch_state(torch::optim::Optimizer& optimizer, const OwnedMaster& master,
                       const std::string& name, StateArchive& archive);

/// Throws Error if `optimizer`, which has shards of `masters`, would not update them as it would
/// update the whole.
void require_updates_shards(const torch::optim::Optimizer& optimizer,
                            const std::vector<OwnedMaster>& masters);

}  // namespace lockstep::detail
