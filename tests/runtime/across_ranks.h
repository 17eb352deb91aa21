#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/storage/impl/replicas.h>

#include "test_device.h"
#include "test_runtime.h"

namespace lockstep::testing {

using namespace detail;

/// Normal numbers that depend on `seed` alone.
inline at::Tensor drawn_on_host(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed));
}

/// The same on device().
inline at::Tensor drawn(at::IntArrayRef sizes, uint64_t seed) {
  return drawn_on_host(sizes, seed).to(device());
}

/// True on every rank if `tensor` has the same bits on all. Collective.
inline bool equal_on_all_ranks(const at::Tensor& tensor) {
  Communicator control = runtime().control();
  return same_on_all_ranks(digest({tensor.detach().contiguous()}), control);
}

/// 0 + 1 + ... + (ranks - 1).
inline double sum_of_ranks() {
  return runtime().size() * (runtime().size() - 1) / 2.0;
}

}  // namespace lockstep::testing
