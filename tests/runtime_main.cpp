#include "runtime_tests.h"

int main(int argc, char** argv) {
  return lockstep::testing::run_runtime_tests(
      argc, argv, lockstep::RuntimeOptions().timeout(std::chrono::seconds(30)));
}
