#pragma once

#include <lockstep/runtime/runtime.h>

namespace lockstep::testing {

/// All of a main: makes the Runtime that runtime() of test_runtime.h returns, and runs the tests.
int run_runtime_tests(int argc, char** argv, const RuntimeOptions& options);

}  // namespace lockstep::testing
