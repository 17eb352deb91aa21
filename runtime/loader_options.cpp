#include <lockstep/collectives/error.h>
#include <lockstep/runtime/loader_options.h>

namespace lockstep {

void LoaderOptions::validate() const {
  LOCKSTEP_CHECK(batch_size() >= 1, "LoaderOptions: batch_size is ", batch_size(),
                 ", expected 1 or more");
  LOCKSTEP_CHECK(workers() >= 0, "LoaderOptions: workers is ", workers(), ", expected 0 or more");
  LOCKSTEP_CHECK(prefetch() >= 0, "LoaderOptions: prefetch is ", prefetch(),
                 ", expected 0 or more");
  LOCKSTEP_CHECK(leaves() >= 0, "LoaderOptions: leaves is ", leaves(), ", expected 0 or more");
  LOCKSTEP_CHECK(epochs() >= 1, "LoaderOptions: epochs is ", epochs(), ", expected 1 or more");
}

}  // namespace lockstep
