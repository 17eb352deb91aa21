#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace lockstep::detail {

/// Returns the number of floating-point operations of one call of an operator, given its inputs.
using OperatorFlops = std::function<int64_t(c10::ArrayRef<const c10::IValue>)>;

/// The function for an operator such as "aten::mm"; null for one that counts nothing.
const OperatorFlops* flops_of(std::string_view name);

}  // namespace lockstep::detail
