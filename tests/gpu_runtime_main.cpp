// All ranks on one GPU, their collectives through the host.
#include <iostream>

#include "gpu_tests.h"
#include "runtime_tests.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (const char* reason = testing::reason_to_skip()) {
    std::cout << reason << std::endl;
    return testing::gpu_tests_skipped;
  }
  testing::keep_bits_equal();
  return testing::run_runtime_tests(argc, argv,
                                    RuntimeOptions()
                                        .timeout(std::chrono::seconds(60))
                                        .device(DeviceKind::cuda)
                                        .share_device(true)
                                        .tf32(false)
                                        .transport(DeviceTransport::staged));
}
