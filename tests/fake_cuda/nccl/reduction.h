#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

/// Element types and sums as NCCL has them: each step rounds to the type of the elements.
namespace fake_cuda {

/// 0 for a type that there is not.
size_t bytes_of(ncclDataType_t type);
std::string name_of(ncclDataType_t type);
/// Whether elements can be summed: 8-bit floating-point types cannot.
bool can_be_reduced(ncclDataType_t type);

/// Multiplies in place. Only for floating-point types.
void multiply_all(void* elements, size_t count, ncclDataType_t type, double factor);
/// Divides in place. Only for integers.
void divide_all(void* elements, size_t count, ncclDataType_t type, int divisor);
/// into = into op from. `op`: ncclSum, ncclProd, ncclMax or ncclMin; as on a device the last two
/// ignore NaN.
void combine(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op);
/// A scalar of a floating-point or integer type.
double load_scalar(const void* scalar, ncclDataType_t type);

}  // namespace fake_cuda
