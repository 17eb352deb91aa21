#include <ATen/autocast_mode.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/collectives/error.h>

namespace lockstep::amp {

namespace {

// The device whose autocast key marks what is kept in fp32, see kept_fp32.h.
constexpr auto kKept = c10::kPrivateUse1;

}  // namespace

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled)
    : device_(device),
      previous_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_kept_(at::autocast::is_autocast_enabled(kKept)),
      previous_dtype_(at::autocast::get_autocast_dtype(device)) {
  LOCKSTEP_CHECK(!enabled || dtype == c10::kHalf || dtype == c10::kBFloat16, "Autocast: dtype is ",
                 dtype, ", it must be Half or BFloat16");
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_enabled(kKept, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
  // The cache knows a weight, not the dtype it was cast to.
  if (dtype != previous_dtype_) {
    clear_cache();
  }
}

Autocast::~Autocast() {
  const bool outermost = at::autocast::decrement_nesting() == 0;
  if (outermost || at::autocast::get_autocast_dtype(device_) != previous_dtype_) {
    clear_cache();
  }
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_enabled(kKept, previous_kept_);
  at::autocast::set_autocast_enabled(device_, previous_enabled_);
}

void Autocast::clear_cache() {
  at::autocast::clear_cache();
}

}  // namespace lockstep::amp
