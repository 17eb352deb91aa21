#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/communicator.h>

#include <cstring>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Small integers, exact in every dtype, that differ by rank and element.
inline at::Tensor input_of(int rank, int64_t numel, at::ScalarType dtype) {
  const at::Tensor index = at::arange(11, at::kLong);
  const at::Tensor period =
      ((index * 7 + rank * 13) % 11 - (at::isIntegralType(dtype, true) ? 0 : 5)).to(dtype);
  return period.repeat({numel / 11 + 1}).narrow(0, 0, numel).contiguous();
}

/// Numbers whose sums depend on the order of summation.
inline at::Tensor uneven_numbers(int rank, int64_t numel) {
  return at::sin(at::arange(numel, at::kDouble) * 12.9898 + rank * 78.233).to(at::kFloat);
}

/// The reduction in double, rounded once to the dtype.
inline at::Tensor expected_reduction(int ranks, int64_t numel, at::ScalarType dtype, ReduceOp op) {
  at::Tensor sum = input_of(0, numel, dtype).to(at::kDouble);
  for (int k = 1; k < ranks; ++k) {
    const at::Tensor next = input_of(k, numel, dtype).to(at::kDouble);
    sum = op == ReduceOp::max()   ? at::maximum(sum, next)
          : op == ReduceOp::min() ? at::minimum(sum, next)
                                  : sum + next;
  }
  if (op.kind() == ReduceOp::Kind::avg) {
    sum = sum / ranks;
  }
  // Through float: what a 16-bit average is rounded from.
  return sum.to(at::elementSize(dtype) == 2 ? at::kFloat : at::kDouble).to(dtype);
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.numel() == b.numel() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

/// Whether every rank has the same bytes in `tensor`.
inline bool same_on_all_ranks(Communicator& ranks, const at::Tensor& tensor) {
  const std::string own(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  for (const std::string& other : ranks.all_gather_bytes(own)) {
    if (other != own) {
      return false;
    }
  }
  return true;
}

/// Sizes on both sides of the cache line, of the small path, of one chunk and of two.
inline std::vector<int64_t> sizes() {
  return {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4097, 131072, 300001};
}

inline void check_all_reduce(Communicator& ranks, int64_t numel, at::ScalarType dtype, ReduceOp op,
                             bool in_window) {
  at::Tensor tensor = in_window ? ranks.allocate(numel, dtype) : at::empty({numel}, dtype);
  tensor.copy_(input_of(ranks.rank(), numel, dtype));
  ranks.all_reduce(tensor, op).wait();
  const at::Tensor expected = expected_reduction(ranks.size(), numel, dtype, op);
  EXPECT_TRUE(same_bits(tensor, expected))
      << dtype << "[" << numel << "] on rank " << ranks.rank() << " of " << ranks.size()
      << (in_window ? ", window" : ", private") << ": element "
      << (tensor != expected).nonzero().slice(0, 0, 1) << " is wrong";
}

inline void check_reduce_scatter(Communicator& ranks, int64_t numel, at::ScalarType dtype,
                                 ReduceOp op) {
  at::Tensor output = at::empty({numel}, dtype);
  ranks.reduce_scatter(output, input_of(ranks.rank(), numel * ranks.size(), dtype), op).wait();
  const at::Tensor expected = expected_reduction(ranks.size(), numel * ranks.size(), dtype, op)
                                  .narrow(0, numel * ranks.rank(), numel)
                                  .contiguous();
  EXPECT_TRUE(same_bits(output, expected)) << dtype << "[" << numel << "]";
}

inline void check_all_gather(Communicator& ranks, int64_t numel, at::ScalarType dtype) {
  at::Tensor output = at::empty({numel * ranks.size()}, dtype);
  ranks.all_gather(output, input_of(ranks.rank(), numel, dtype)).wait();
  std::vector<at::Tensor> inputs;
  for (int k = 0; k < ranks.size(); ++k) {
    inputs.push_back(input_of(k, numel, dtype));
  }
  EXPECT_TRUE(same_bits(output, at::cat(inputs))) << dtype << "[" << numel << "]";
}

inline void check_broadcast(Communicator& ranks, int64_t numel, at::ScalarType dtype, int root) {
  at::Tensor tensor = input_of(ranks.rank(), numel, dtype);
  ranks.broadcast(tensor, root).wait();
  EXPECT_TRUE(same_bits(tensor, input_of(root, numel, dtype)))
      << dtype << "[" << numel << "] from " << root;
}

}  // namespace lockstep::testing
