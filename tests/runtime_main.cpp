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
  lockstep::testing::init_tests(&argc, argv);
  lockstep::Runtime runtime(argc, argv,
                            lockstep::RuntimeOptions().timeout(std::chrono::seconds(30)));
  lockstep::testing::the_runtime = &runtime;
  return lockstep::testing::run_tests(runtime.rank(), runtime.size());
}
