#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace lockstep::exported {

/// The operator of a node's target, such as "torch.ops.aten.add.Tensor". Throws Malformed for
/// custom, higher-order and missing operators, and for those that open files.
c10::OperatorHandle find_operator(const std::string& target);

/// True for an operator that makes a tensor of one value. Its dtype= names the model's where they
/// are equal.
bool makes_a_constant(const c10::FunctionSchema& schema);

}  // namespace lockstep::exported
