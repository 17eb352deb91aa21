#include <lockstep/runtime/storage/impl/slow_dtype_notice.h>

#include <iostream>
#include <utility>

namespace lockstep::detail {

SlowDtypeNotice::SlowDtypeNotice(Measure measure, std::ostream& out)
    : measure_(std::move(measure)), out_(&out) {}

SlowDtypeNotice& SlowDtypeNotice::of_process() {
  static SlowDtypeNotice notice([](c10::ScalarType dtype) { return amp::compute_speed(dtype); },
                                std::cerr);
  return notice;
}

void SlowDtypeNotice::look_at(const Precision& precision, c10::Device device) {
  if (!device.is_cpu() || !precision.autocast()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const c10::ScalarType dtype = precision.compute_dtype();
  if (!seen_.insert(dtype).second) {
    return;
  }
  const std::string advice = amp::slow_compute_advice(dtype, measure_(dtype));
  if (!advice.empty()) {
    *out_ << "lockstep: " << advice << "; LOCKSTEP_PROBE_DTYPE=0 silences this\n" << std::flush;
  }
}

void SlowDtypeNotice::replace(Measure measure, std::ostream& out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  measure_ = std::move(measure);
  out_ = &out;
  seen_.clear();
}

}  // namespace lockstep::detail
