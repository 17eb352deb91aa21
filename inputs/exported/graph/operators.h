#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace lockstep::exported {

/// The operator of a node's target, such as "torch.ops.aten.add.Tensor". Throws Malformed for
/// custom, higher-order and missing operators, and for those that open files.
c10::OperatorHandle find_operator(const std::string& target);

/// True for an operator that fills a tensor with one value. If its dtype= is that of the model, it
/// follows the model's dtype.
bool makes_a_constant(const c10::FunctionSchema& schema);

}  // namespace lockstep::exported
