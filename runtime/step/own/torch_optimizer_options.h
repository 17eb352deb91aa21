#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace lockstep::detail {

/// Class, groups and options of an optimizer on `masters` in one line, to be compared between
/// ranks: "torch::optim::AdamW: parameters 0-3 with lr 0.1, betas (0.9, 0.999), ...". If options
/// cannot be serialized, the line has only the learning rate.
std::string describe_options(const torch::optim::Optimizer& optimizer,
                             const std::vector<at::Tensor>& masters);

}  // namespace lockstep::detail
