#pragma once

#include <lockstep/runtime/state_archive.h>

#include <string>

namespace torch::optim {
class Optimizer;
}

namespace lockstep::detail {

/// What `optimizer` keeps for `parameter`, under the names that torch.optim gives it in Python. It
/// is made where the snapshot has it, and dropped where that does not (an optimizer makes it in its
/// first step). Throws Error for an optimizer that is not Adam, AdamW, SGD, Adagrad or RMSprop.
void visit_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                       const std::string& name, StateArchive& archive);

}  // namespace lockstep::detail
