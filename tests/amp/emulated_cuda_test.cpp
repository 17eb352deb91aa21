// The emulated device itself: what it runs, and what it refuses instead of hanging.
#include "emulated_cuda/cuda_runtime.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace lockstep {
namespace {

class EmulatedCuda : public ::testing::Test {
 protected:
  void SetUp() override { emulated_cuda::device() = {}; }
};

constexpr unsigned kThreads = 64;

template <typename... Parameters>
std::string problem_of(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                       std::decay_t<Parameters>... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  const cudaError_t error = cudaLaunchKernel(kernel, blocks, threads, pointers, 0, nullptr);
  EXPECT_EQ(cudaGetLastError(), error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error is told once";
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

__global__ void write_index(int* values) {
  values[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(threadIdx.x + 1000 * blockIdx.x);
}

TEST_F(EmulatedCuda, RunsEveryThreadOfEveryBlock) {
  std::vector<int> values(3 * kThreads, -1);
  EXPECT_EQ(problem_of(write_index, 3, kThreads, values.data()), "");
  for (unsigned k = 0; k < values.size(); ++k) {
    EXPECT_EQ(values[k], static_cast<int>(k % kThreads + 1000 * (k / kThreads)));
  }
}

__global__ void turn_around(int* values) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

__global__ void turn_around_without_barrier(int* values) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = values[threadIdx.x];
  values[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

TEST_F(EmulatedCuda, ThreadsMeetAtBarriersAndOnlyThere) {
  for (const auto order : {emulated_cuda::Order::forward, emulated_cuda::Order::backward,
                           emulated_cuda::Order::shuffled}) {
    emulated_cuda::device().order = order;
    std::vector<int> values(kThreads);
    std::iota(values.begin(), values.end(), 1000 * static_cast<int>(order));
    std::vector<int> torn = values;
    EXPECT_EQ(problem_of(turn_around, 1, kThreads, values.data()), "");
    EXPECT_EQ(values, std::vector<int>(torn.rbegin(), torn.rend()));
    EXPECT_EQ(problem_of(turn_around_without_barrier, 1, kThreads, torn.data()), "");
    EXPECT_NE(torn, values);
  }
}

__global__ void leaves_early(int* values) {
  if (threadIdx.x == 5) {
    return;
  }
  __syncthreads();
  values[threadIdx.x] = 1;
}

TEST_F(EmulatedCuda, NamesABarrierThatAThreadNeverReaches) {
  std::vector<int> values(kThreads, 0);
  EXPECT_THAT(problem_of(leaves_early, 2, kThreads, values.data()),
              AllOf(HasSubstr("thread (0, 0, 0) of block (0, 0, 0) waits in __syncthreads()"),
                    HasSubstr("emulated_cuda_test.cpp:"), HasSubstr("1 of 64 have returned")));
  EXPECT_EQ(values, std::vector<int>(kThreads, 0));
  EXPECT_EQ(problem_of(turn_around, 1, kThreads, values.data()), "") << "the next launch is well";
}

__global__ void two_barriers(int* values) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  values[threadIdx.x] = 1;
}

TEST_F(EmulatedCuda, NamesBarriersThatAreNotTheSame) {
  std::vector<int> values(kThreads, 0);
  EXPECT_THAT(problem_of(two_barriers, 1, kThreads, values.data()),
              HasSubstr("others are in that at"));
}

__global__ void exchange_among(unsigned mask, unsigned lanes, int step, unsigned* values) {
  if ((lanes >> (threadIdx.x % 32) & 1U) != 0) {
    values[threadIdx.x] = __shfl_xor_sync(mask, 100 + threadIdx.x, step);
  }
}

TEST_F(EmulatedCuda, LanesExchangeAmongThoseOfTheirMask) {
  std::vector<unsigned> values(kThreads, 0);
  EXPECT_EQ(problem_of(exchange_among, 1, kThreads, ~0U, ~0U, 16, values.data()), "");
  EXPECT_EQ(values[1], 117U);
  EXPECT_EQ(values[63], 147U);
  values.assign(kThreads, 0);
  EXPECT_EQ(problem_of(exchange_among, 1, kThreads, 0xf0U, 0xf0U, 1, values.data()), "");
  EXPECT_EQ(values[4], 105U);
  EXPECT_EQ(values[3], 0U);
}

TEST_F(EmulatedCuda, NamesLanesThatAreMissing) {
  std::vector<unsigned> values(kThreads, 0);
  unsigned* const out = values.data();
  EXPECT_THAT(problem_of(exchange_among, 1, kThreads, ~0U, ~2U, 1, out),
              AllOf(HasSubstr("waits in an exchange of the lanes in 0xffffffff"),
                    HasSubstr("2 of 64 have returned")));
  EXPECT_THAT(problem_of(exchange_among, 1, kThreads, 0xffU, ~0U, 1, out),
              HasSubstr("lane 8, exchanges with lane 9"));
  EXPECT_THAT(problem_of(exchange_among, 1, kThreads, 0xffU, 0xffU, 8, out),
              HasSubstr("lane 0, exchanges with lane 8"));
  EXPECT_THAT(problem_of(exchange_among, 1, 16, ~0U, ~0U, 1, out),
              HasSubstr("waits in an exchange"));
}

struct Large {
  char bytes[4097];
};
__global__ void takes(Large) {}
__global__ void takes_nothing() {}

TEST_F(EmulatedCuda, RefusesLaunchesThatADeviceRefuses) {
  EXPECT_THAT(problem_of(takes_nothing, 0, 32), HasSubstr("no grid has 0 x 1 x 1"));
  EXPECT_THAT(problem_of(takes_nothing, dim3(1, 65536), 32), HasSubstr("no grid has 1 x 65536"));
  EXPECT_THAT(problem_of(takes_nothing, 1, 0), HasSubstr("no block has 0 x 1 x 1"));
  EXPECT_THAT(problem_of(takes_nothing, 1, 1025), HasSubstr("no block has 1025"));
  EXPECT_THAT(problem_of(takes_nothing, 1, dim3(512, 4)), HasSubstr("no block has 512 x 4"));
  EXPECT_EQ(problem_of(takes_nothing, dim3(1, 65535), 1), "");
  EXPECT_THAT(problem_of(takes, 1, 1, Large{}), HasSubstr("4097 bytes"));
}

}  // namespace
}  // namespace lockstep
