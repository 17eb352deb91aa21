#pragma once

#include "instruction.h"

/// What the instructions do. The table in opcodes.cpp says which function is whose.
namespace fake_cuda::operations {

#define FAKE_CUDA_OPERATION(name) void name(Warp& warp, const Instruction& i, uint32_t mask);
// integer_operations.cpp
FAKE_CUDA_OPERATION(multiply_add)
FAKE_CUDA_OPERATION(add3)
FAKE_CUDA_OPERATION(add2)
FAKE_CUDA_OPERATION(shifted_add)
FAKE_CUDA_OPERATION(minmax)
FAKE_CUDA_OPERATION(absolute)
FAKE_CUDA_OPERATION(compare)
FAKE_CUDA_OPERATION(dot_product)
// bit_operations.cpp
FAKE_CUDA_OPERATION(move)
FAKE_CUDA_OPERATION(logic3)
FAKE_CUDA_OPERATION(predicate_logic3)
FAKE_CUDA_OPERATION(shift)
FAKE_CUDA_OPERATION(permute)
FAKE_CUDA_OPERATION(select)
FAKE_CUDA_OPERATION(leading_one)
FAKE_CUDA_OPERATION(population)
FAKE_CUDA_OPERATION(reverse)
FAKE_CUDA_OPERATION(bit_mask)
FAKE_CUDA_OPERATION(sign_extend)
FAKE_CUDA_OPERATION(register_to_predicates)
FAKE_CUDA_OPERATION(predicates_to_register)
// float_operations.cpp
FAKE_CUDA_OPERATION(float_add)
FAKE_CUDA_OPERATION(float_multiply)
FAKE_CUDA_OPERATION(float_multiply_add)
FAKE_CUDA_OPERATION(float_compare)
FAKE_CUDA_OPERATION(float_set)
FAKE_CUDA_OPERATION(float_select)
FAKE_CUDA_OPERATION(float_minmax)
FAKE_CUDA_OPERATION(float_function)
FAKE_CUDA_OPERATION(float_check_division)
// double_operations.cpp
FAKE_CUDA_OPERATION(double_add)
FAKE_CUDA_OPERATION(double_multiply)
FAKE_CUDA_OPERATION(double_multiply_add)
FAKE_CUDA_OPERATION(double_compare)
// half_operations.cpp
FAKE_CUDA_OPERATION(half_add)
FAKE_CUDA_OPERATION(half_multiply)
FAKE_CUDA_OPERATION(half_multiply_add)
FAKE_CUDA_OPERATION(half_compare)
FAKE_CUDA_OPERATION(half_set)
FAKE_CUDA_OPERATION(half_minmax)
// conversion_operations.cpp
FAKE_CUDA_OPERATION(float_to_float)
FAKE_CUDA_OPERATION(float_to_integer)
FAKE_CUDA_OPERATION(integer_to_float)
FAKE_CUDA_OPERATION(pack_integers)
FAKE_CUDA_OPERATION(round_float)
FAKE_CUDA_OPERATION(pack_floats)
// memory_operations.cpp
FAKE_CUDA_OPERATION(load)
FAKE_CUDA_OPERATION(load_shared)
FAKE_CUDA_OPERATION(load_local)
FAKE_CUDA_OPERATION(store)
FAKE_CUDA_OPERATION(store_shared)
FAKE_CUDA_OPERATION(store_local)
FAKE_CUDA_OPERATION(load_constant)
FAKE_CUDA_OPERATION(query_space)
// atomic_operations.cpp
FAKE_CUDA_OPERATION(atomic)
FAKE_CUDA_OPERATION(atomic_shared)
// warp_operations.cpp
FAKE_CUDA_OPERATION(read_special)
FAKE_CUDA_OPERATION(read_special_wide)
FAKE_CUDA_OPERATION(to_uniform)
FAKE_CUDA_OPERATION(vote)
FAKE_CUDA_OPERATION(match)
FAKE_CUDA_OPERATION(reduce)
FAKE_CUDA_OPERATION(shuffle)
// control_operations.cpp
FAKE_CUDA_OPERATION(nothing)
FAKE_CUDA_OPERATION(branch)
FAKE_CUDA_OPERATION(branch_indexed)
FAKE_CUDA_OPERATION(call)
FAKE_CUDA_OPERATION(return_from)
FAKE_CUDA_OPERATION(end)
FAKE_CUDA_OPERATION(trap)
FAKE_CUDA_OPERATION(program_counter)
FAKE_CUDA_OPERATION(set_sync)
FAKE_CUDA_OPERATION(sync)
FAKE_CUDA_OPERATION(leave_sync)
FAKE_CUDA_OPERATION(warp_sync)
FAKE_CUDA_OPERATION(move_barrier)
FAKE_CUDA_OPERATION(block_barrier)
FAKE_CUDA_OPERATION(barrier_result)
#undef FAKE_CUDA_OPERATION

}  // namespace fake_cuda::operations
