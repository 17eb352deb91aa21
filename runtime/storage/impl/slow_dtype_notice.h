#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <lockstep/amp/impl/compute_speed.h>
#include <lockstep/amp/precision.h>

#include <functional>
#include <iosfwd>
#include <mutex>
#include <set>

namespace lockstep::detail {

/// Prints a line, once per dtype, if the dtype of a Trainer is slow on this processor.
class SlowDtypeNotice {
 public:
  using Measure = std::function<amp::ComputeSpeed(c10::ScalarType)>;
  SlowDtypeNotice(Measure measure, std::ostream& out);
  /// The instance that the Trainers of rank 0 use: it measures and prints on standard error.
  static SlowDtypeNotice& of_process();

  /// Measures nothing on a device other than the CPU, at O0, or for a dtype seen before.
  void look_at(const Precision& precision, c10::Device device);
  /// Replaces how it measures and where it prints, and forgets what it has seen. For tests.
  void replace(Measure measure, std::ostream& out);

 private:
  std::mutex mutex_;
  Measure measure_;
  std::ostream* out_;
  std::set<c10::ScalarType> seen_;
};

}  // namespace lockstep::detail
