// All ranks on one GPU, their collectives through the host.
#include <iostream>

#include "gpu_tests.h"
#include "ranks.h"
#include "test_runtime.h"

namespace lockstep::testing {
namespace {
Runtime* the_runtime = nullptr;
}

Runtime& runtime() {
  return *the_runtime;
}

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  using namespace lockstep;
  if (const char* reason = testing::reason_to_skip()) {
    std::cout << reason << std::endl;
    return testing::gpu_tests_skipped;
  }
  testing::init_tests(&argc, argv);
  Runtime runtime(argc, argv,
                  RuntimeOptions()
                      .timeout(std::chrono::seconds(60))
                      .device(DeviceKind::cuda)
                      .share_device(true)
                      .transport(DeviceTransport::staged));
  testing::the_runtime = &runtime;
  return testing::run_tests(runtime.rank(), runtime.size());
}
