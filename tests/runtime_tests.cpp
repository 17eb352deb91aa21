#include "runtime_tests.h"

#include "ranks.h"
#include "test_device.h"
#include "test_runtime.h"

namespace lockstep::testing {
namespace {
Runtime* the_runtime = nullptr;
}

Runtime& runtime() {
  return *the_runtime;
}

c10::Device device() {
  return the_runtime->device();
}

int run_runtime_tests(int argc, char** argv, const RuntimeOptions& options) {
  init_tests(&argc, argv);
  Runtime own(argc, argv, options);
  the_runtime = &own;
  return run_tests(own.rank(), own.size());
}

}  // namespace lockstep::testing
