#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Derives the random seeds of the samples of one epoch.
struct SampleSeeds {
  uint64_t seed = 0;  // of the run; for a local loader, of this rank
  int64_t epoch = 0;

  uint64_t of(size_t index) const;
  /// The seed for a batch that get_batch() returns ready, as one unit.
  uint64_t of(const std::vector<size_t>& indices) const;
};

/// Replaces the default generator of LibTorch's random operators (torch::rand, randn_like, dropout,
/// randperm, ...) while the object lives, on this thread and for host tensors. The operators draw
/// from a generator that starts with `seed`, and the stream of the default generator does not
/// advance. An operator that is passed a generator uses that generator.
/// Threads: any; destroy the object on the thread that made it. Objects may be nested: the
/// innermost one applies.
class SampleRandom {
 public:
  [[nodiscard]] explicit SampleRandom(uint64_t seed);
  ~SampleRandom();
  SampleRandom(const SampleRandom&) = delete;
  SampleRandom& operator=(const SampleRandom&) = delete;

  /// Created at the first call.
  const at::Generator& generator();

 private:
  uint64_t seed_;
  at::Generator generator_;
  SampleRandom* outer_;
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace lockstep
