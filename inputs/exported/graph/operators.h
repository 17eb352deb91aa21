#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::exported {

/// The operator of a node's target, such as "torch.ops.aten.add.Tensor". `namespaces`: those of
/// registered operators that the program may call, besides "aten". Throws Malformed for other
/// custom, higher-order and missing operators, and for those that open files.
c10::OperatorHandle find_operator(const std::string& target,
                                  const std::vector<std::string>& namespaces = {});

/// True for an operator that fills a tensor with one value, which 16 bits can hold. If its dtype=
/// is that of the model, it follows the model's dtype. `values`: of its arguments.
bool makes_a_constant(const c10::FunctionSchema& schema,
                      const std::unordered_map<std::string, const nlohmann::json*>& values);

}  // namespace lockstep::exported
