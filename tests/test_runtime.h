#pragma once

#include <lockstep/runtime/runtime.h>

#include "test_device.h"

namespace lockstep::testing {

/// The Runtime of this test. For programs made by lockstep_add_mpi_test(... RUNTIME_MAIN); a
/// collective waits 30 s for its peers there.
Runtime& runtime();

/// A world of this process alone, on device(), whose fp32 products can be compared with the host's.
inline Runtime solo_runtime(const RuntimeOptions& options = {}) {
  return Runtime::solo(RuntimeOptions(options)
                           .device(device().is_cuda() ? DeviceKind::cuda : DeviceKind::cpu)
                           .tf32(false));
}

}  // namespace lockstep::testing
