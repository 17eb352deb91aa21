#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Where the samples of one epoch take their random numbers from.
struct SampleSeeds {
  uint64_t seed = 0;  // of the run; where ranks have samples of their own, of this rank
  int64_t epoch = 0;

  uint64_t of(size_t index) const;
  /// For a batch whose samples cannot be told apart.
  uint64_t of(const std::vector<size_t>& indices) const;
};

/// While one lives, LibTorch's random operators (torch::rand, randn_like, dropout, randperm, ...)
/// draw, on this thread and for host tensors, from a generator that begins with `seed`, not from
/// the default generator, whose stream stays where it is. An operator that is given a generator
/// uses that one.
/// Threads: any; ends on the thread on which it began. Nested ones: the innermost counts.
class SampleRandom {
 public:
  explicit SampleRandom(uint64_t seed);
  ~SampleRandom();
  SampleRandom(const SampleRandom&) = delete;
  SampleRandom& operator=(const SampleRandom&) = delete;

  /// Made when it is first asked for.
  const at::Generator& generator();

 private:
  uint64_t seed_;
  at::Generator generator_;
  SampleRandom* outer_;
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace lockstep
