#include <hwy/targets.h>

#include <cstdlib>
#include <string_view>

namespace lockstep::benchmarks {
namespace {

/// run.py --vectors avx2: lockstep's kernels as a processor without AVX-512 runs them.
[[maybe_unused]] const bool limited_to_avx2 = [] {
  const char* vectors = std::getenv("LOCKSTEP_BENCH_VECTORS");
  const bool limited = vectors != nullptr && std::string_view(vectors) == "avx2";
  if (limited) {
    hwy::DisableTargets(HWY_AVX2 - 1);  // a wider target has a lower bit
  }
  return limited;
}();

}  // namespace
}  // namespace lockstep::benchmarks
