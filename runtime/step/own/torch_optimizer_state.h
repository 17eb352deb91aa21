#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/data/impl/state_archive.h>

#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace lockstep::detail {

/// A master as the optimizer on this rank has it.
struct OwnedMaster {
  at::Tensor elements;  // all of it, or this rank's shard, of as many dimensions: {1, 1, n}
  at::Tensor whole;     // has the sizes and strides of all of it
  int64_t begin = 0;    // of the shard, in the memory order of `whole`
  bool is_sharded = false;
};

/// What `optimizer` keeps for a parameter, under the names that torch.optim gives it in Python. It
/// is made where the snapshot has it. Where that does not, it is dropped (an optimizer makes it in
/// its first step), and that of an Adagrad is as its constructor made it. Throws Error for an
/// optimizer that is not Adam, AdamW, SGD, Adagrad, RMSprop or Muon.
void visit_torch_state(torch::optim::Optimizer& optimizer, const OwnedMaster& master,
                       const std::string& name, StateArchive& archive);

/// Throws Error if `optimizer`, which has shards of `masters`, would not update them as it would
/// update the whole.
void require_updates_shards(const torch::optim::Optimizer& optimizer,
                            const std::vector<OwnedMaster>& masters);

}  // namespace lockstep::detail
