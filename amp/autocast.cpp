#include <ATen/autocast_mode.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/collectives/check.h>

namespace lockstep::amp {

namespace {

// The device whose autocast key marks parameters that are kept in fp32 (kept_fp32.h).
constexpr auto kKept = c10::kPrivateUse1;

}  // namespace

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled)
    : device_(device),
      previous_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_kept_(at::autocast::is_autocast_enabled(kKept)),
      previous_dtype_(at::autocast::get_autocast_dtype(device)),
      kernels_(enabled),
      weight_casts_(enabled) {
  LOCKSTEP_CHECK(!enabled || dtype == c10::kHalf || dtype == c10::kBFloat16, "Autocast: dtype is ",
                 dtype, ", it must be Half or BFloat16");
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_enabled(kKept, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
}

Autocast::~Autocast() {
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_enabled(kKept, previous_kept_);
  at::autocast::set_autocast_enabled(device_, previous_enabled_);
}

void Autocast::clear_cache() {
  SharedWeightCasts::clear();
}

}  // namespace lockstep::amp
