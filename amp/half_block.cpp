#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <lockstep/amp/half_block.h>

#include <algorithm>

namespace lockstep::amp {

void load_block(const void* array, c10::ScalarType dtype, int64_t begin, int64_t size, float* out) {
  if (dtype == c10::kHalf) {
    std::copy_n(static_cast<const c10::Half*>(array) + begin, size, out);
  } else if (dtype == c10::kBFloat16) {
    std::copy_n(static_cast<const c10::BFloat16*>(array) + begin, size, out);
  } else {
    std::copy_n(static_cast<const float*>(array) + begin, size, out);
  }
}

void store_block(const float* in, int64_t size, void* array, c10::ScalarType dtype, int64_t begin) {
  if (dtype == c10::kHalf) {
    std::copy_n(in, size, static_cast<c10::Half*>(array) + begin);
  } else if (dtype == c10::kBFloat16) {
    std::copy_n(in, size, static_cast<c10::BFloat16*>(array) + begin);
  } else {
    std::copy_n(in, size, static_cast<float*>(array) + begin);
  }
}

}  // namespace lockstep::amp
